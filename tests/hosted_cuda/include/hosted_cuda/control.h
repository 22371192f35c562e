// What a test may set about the hosted device, and ask of it. Settings apply to what is called afterwards.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace annulus::hosted {

// The seed of the schedule: which streams are delayed when, and in which order the threads of a block begin. 0: no
// delays, and threads in their order. Unless set it is ANNULUS_HOSTED_SEED, or 0.
void set_seed(uint64_t seed);

void set_device_count(int count);        // 4 unless set
void set_device_memory(int64_t bytes);   // of each device; 16 GiB unless set
void set_pinned_memory(int64_t bytes);   // of the host; 64 GiB unless set
void set_compute_capability(int major);  // of each device; 8 unless set

// Every device runs one kernel at a time, NCCL's included, in the order of their launches: the worst that a GPU may do.
// Ranks that launch in different orders then wait for each other for ever.
void set_one_kernel_at_a_time(bool on);

// How long an operation of NCCL waits for the other ranks before it fails and names them; 20 s unless set.
void set_nccl_timeout(std::chrono::milliseconds timeout);

// Why the last call failed, or what the last kernel that failed did wrong, in words; of all threads.
std::string last_fault();

// Takes back the error that sticks to every device after a kernel has failed, which a process cannot on a GPU.
void forget_faults();

// How many blocks of kernels this thread has launched so far.
int64_t launched_blocks();

// How often this thread has waited for a device: synchronising calls, and copies into pageable memory.
int64_t host_synchronisations();

}  // namespace annulus::hosted
