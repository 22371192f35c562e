// Loaded in place of NCCL and cuBLASLt; has none of their functions.
