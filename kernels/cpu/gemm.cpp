#include "kernels/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "kernels/cpu/gemm_in_float32.h"
#include "kernels/cpu/gemm_in_tiles.h"
#include "kernels/cpu/isa.h"
#include "kernels/error.h"

namespace annulus::cpu {
namespace {

// The calling thread's OpenMP setting for the length of a scope. oneDNN lays a primitive out for the setting it finds.
class ThreadSetting {
 public:
  explicit ThreadSetting(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ThreadSetting(const ThreadSetting&) = delete;
  ThreadSetting& operator=(const ThreadSetting&) = delete;
  ~ThreadSetting() { omp_set_num_threads(before_); }

 private:
  int before_;
};

int threads_of_caller() {
  return omp_in_parallel() != 0 ? 1 : omp_get_max_threads();
}

// Everything that distinguishes two primitives.
struct Key {
  int64_t m, n, k, ldc, lda, ldb;
  DType c_dtype, dtype;
  bool transpose_a, transpose_b, accumulate;
  int threads;
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    const int64_t flags = static_cast<int64_t>(key.c_dtype) << 8 | static_cast<int64_t>(key.dtype) << 4 |
                          static_cast<int64_t>(key.transpose_a) << 2 | static_cast<int64_t>(key.transpose_b) << 1 |
                          static_cast<int64_t>(key.accumulate);
    uint64_t hash = 0;
    for (const int64_t part : {key.m, key.n, key.k, key.ldc, key.lda, key.ldb, flags, int64_t{key.threads}}) {
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

Key key_of(const Gemm& gemm, int threads) {
  return {gemm.m,       gemm.n,     gemm.k,           gemm.ldc,         gemm.lda,        gemm.ldb,
          gemm.c_dtype, gemm.dtype, gemm.transpose_a, gemm.transpose_b, gemm.accumulate, threads};
}

dnnl::memory::desc describe(int64_t rows, int64_t columns, int64_t ld, bool transposed, DType dtype) {
  const auto type = dtype == DType::float32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
  return {dnnl::memory::dims{rows, columns}, type, strides};
}

dnnl::matmul::primitive_desc describe(const Key& key, const dnnl::engine& engine) {
  const auto a = describe(key.m, key.k, key.lda, key.transpose_a, key.dtype);
  const auto b = describe(key.k, key.n, key.ldb, key.transpose_b, key.dtype);
  const auto c = describe(key.m, key.n, key.ldc, false, key.c_dtype);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

// A primitive with the memory objects it is run on; the objects are pointed at each call's data.
class Product {
 public:
  Product(const Key& key, const dnnl::engine& engine) {
    const ThreadSetting setting(key.threads);
    const auto description = describe(key, engine);
    scratch_bytes_ = static_cast<int64_t>(description.scratchpad_desc().get_size());
    primitive_ = dnnl::matmul(description);
    a_ = dnnl::memory(description.src_desc(), engine, nullptr);
    b_ = dnnl::memory(description.weights_desc(), engine, nullptr);
    c_ = dnnl::memory(description.dst_desc(), engine, nullptr);
    scratch_ = dnnl::memory(description.scratchpad_desc(), engine, nullptr);
  }

  [[nodiscard]] int64_t scratch_bytes() const { return scratch_bytes_; }

  void run(const Gemm& gemm, void* scratch, const dnnl::stream& stream) {
    a_.set_data_handle(const_cast<void*>(gemm.a));  // NOLINT: oneDNN reads it
    b_.set_data_handle(const_cast<void*>(gemm.b));  // NOLINT
    c_.set_data_handle(gemm.c);
    scratch_.set_data_handle(scratch);
    // The C call, since the C++ one builds a map: this is called for every tile of attention.
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, a_.get()},
                                         {DNNL_ARG_WEIGHTS, b_.get()},
                                         {DNNL_ARG_DST, c_.get()},
                                         {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream.get(), 4, arguments), "execution failed");
  }

 private:
  dnnl::matmul primitive_;
  dnnl::memory a_, b_, c_, scratch_;
  int64_t scratch_bytes_ = 0;
};

std::string to_string(const Key& key) {
  const auto matrix = [](int64_t rows, int64_t columns, DType dtype, bool transposed) {
    return std::string(name_of(dtype)) + ' ' + Shape{rows, columns}.to_string() + (transposed ? " transposed" : "");
  };
  return matrix(key.m, key.k, key.dtype, key.transpose_a) + " times " +
         matrix(key.k, key.n, key.dtype, key.transpose_b) + " into " + matrix(key.m, key.n, key.c_dtype, false);
}

[[noreturn]] void report(const dnnl::error& error, const Key& key) {
  throw EnvironmentError(gemm_library() + " cannot compute the matrix product " + to_string(key) + ": " + error.what());
}

// The primitives one thread has used. Threads share what is costly, the generated code, in oneDNN's own cache.
class Products {
 public:
  Product& find(const Key& key) {
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    return products_.emplace(key, Product(key, engine_)).first->second;
  }

  [[nodiscard]] const dnnl::stream& stream() const { return stream_; }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unordered_map<Key, Product, KeyHash> products_;
};

dnnl::cpu_isa cpu_isa_of(IsaBound bound) {
  switch (bound) {
    case IsaBound::plain:
      return dnnl::cpu_isa::sse41;
    case IsaBound::avx2:
      return dnnl::cpu_isa::avx2;
    case IsaBound::avx512:
      return dnnl::cpu_isa::avx512_core;
    case IsaBound::avx512_bf16:
    case IsaBound::none:  // products of bfloat16 in AMX are ours
      return dnnl::cpu_isa::avx512_core_bf16;
  }
  throw InternalError("a bound on instruction sets that does not exist");
}

// oneDNN takes a bound once, before anything has asked it what the CPU has.
void bound_library() {
  static const bool bounded = dnnl::set_max_cpu_isa(cpu_isa_of(isa_bound())) == dnnl::status::success;
  if (bounded) return;
  throw EnvironmentError(gemm_library() +
                         " does not let its instruction sets be bounded; install one that was built with "
                         "ONEDNN_ENABLE_MAX_CPU_ISA, as Debian's is");
}

Products& products_of_thread() {
  bound_library();
  thread_local Products products;
  return products;
}

// C = 0 where there is nothing to add up.
void clear(const Gemm& gemm) {
  const auto row_bytes = static_cast<size_t>(gemm.n * size_of(gemm.c_dtype));
  for (int64_t row = 0; row < gemm.m; ++row) {
    std::memset(static_cast<char*>(gemm.c) + row * gemm.ldc * size_of(gemm.c_dtype), 0, row_bytes);
  }
}

bool is_empty(const Gemm& gemm) {
  return gemm.m == 0 || gemm.n == 0 || gemm.k == 0;
}

bool needs_tiles(const Gemm& gemm) {
  return gemm.dtype == DType::bfloat16 && multiplies_in_tiles();
}

bool needs_float32(const Gemm& gemm) {
  return gemm.dtype == DType::bfloat16 && !multiplies_bfloat16();
}

}  // namespace

bool multiplies_bfloat16() {
  bound_library();
  // The values of cpu_isa are sets of bits: what contains another set has its instructions.
  constexpr auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  static const bool answer = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
  return answer;
}

int64_t gemm_scratch_bytes(const Gemm& gemm) {
  if (is_empty(gemm)) return 0;
  if (needs_tiles(gemm)) {
    return std::max(gemm_in_tiles_scratch_bytes(gemm, 1), gemm_in_tiles_scratch_bytes(gemm, threads_of_caller()));
  }
  if (needs_float32(gemm)) return gemm_in_float32_scratch_bytes(gemm);
  const auto scratch_bytes = [&](int threads) {
    const Key key = key_of(gemm, threads);
    try {
      return products_of_thread().find(key).scratch_bytes();
    } catch (const dnnl::error& error) {
      report(error, key);
    }
  };
  return std::max(scratch_bytes(1), scratch_bytes(threads_of_caller()));
}

void run_gemm(const Gemm& gemm, void* scratch) {
  if (is_empty(gemm)) {
    if (!gemm.accumulate && gemm.n > 0) clear(gemm);
    return;
  }
  if (needs_tiles(gemm)) return run_gemm_in_tiles(gemm, scratch, threads_of_caller());
  if (needs_float32(gemm)) return run_gemm_in_float32(gemm, scratch, threads_of_caller());
  const Key key = key_of(gemm, threads_of_caller());
  const ThreadSetting setting(key.threads);
  try {
    Products& products = products_of_thread();
    products.find(key).run(gemm, scratch, products.stream());
  } catch (const dnnl::error& error) {
    report(error, key);
  }
}

std::string gemm_library() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + '.' + std::to_string(version->minor) + '.' +
         std::to_string(version->patch);
}

}  // namespace annulus::cpu
