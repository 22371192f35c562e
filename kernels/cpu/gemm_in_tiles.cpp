#include "kernels/cpu/gemm_in_tiles.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amx_tile.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/vector.h"

namespace annulus::cpu {
namespace {

// A block of a, one of b and one of c are together what the second-level cache holds, 2 MiB.
constexpr int64_t block_lines = 512, block_terms = 256;
constexpr int64_t most_passes_in_place = 8;

// Equal blocks of whole panels, none above block_lines, and enough of them for all threads.
struct Blocks {
  Blocks(const Gemm& gemm, int threads) {
    while (tasks() == 0 || (tasks() < threads && std::max(rows, columns) > amx::panel_lines)) {
      int64_t& longer = rows >= columns ? rows : columns;
      if (tasks() != 0) longer /= 2;
      row_blocks = ceil_divide(gemm.m, rows), column_blocks = ceil_divide(gemm.n, columns);
    }
    rows = round_up(ceil_divide(gemm.m, row_blocks), amx::panel_lines);
    columns = round_up(ceil_divide(gemm.n, column_blocks), amx::panel_lines);
    row_blocks = ceil_divide(gemm.m, rows), column_blocks = ceil_divide(gemm.n, columns);
    terms = round_up(std::min(gemm.k, block_terms), amx::step_terms);
  }

  [[nodiscard]] int64_t tasks() const { return row_blocks * column_blocks; }
  // Of a block of c: rows a power of two apart would share a few sets of the first-level cache.
  [[nodiscard]] int64_t c_stride() const { return columns + 16; }

  int64_t rows = block_lines, columns = block_lines, terms = block_terms;
  int64_t row_blocks = 0, column_blocks = 0;
};

// What one thread needs.
struct Scratch {
  Scratch(const Blocks& blocks, void* memory) {
    const auto take = [&](int64_t size) {
      auto* const taken = memory == nullptr ? nullptr : static_cast<char*>(memory) + bytes;
      bytes += size;
      return taken;
    };
    const int64_t stride = amx::panel_lines * blocks.terms;
    a = {reinterpret_cast<bfloat16*>(take(blocks.rows * blocks.terms * size_of(DType::bfloat16))), stride};
    b = {reinterpret_cast<bfloat16*>(take(blocks.columns * blocks.terms * size_of(DType::bfloat16))), stride};
    c = reinterpret_cast<float*>(take(blocks.rows * blocks.c_stride() * size_of(DType::float32)));
  }

  amx::Panels a, b;
  float* c;  // (rows, c_stride)
  int64_t bytes = 0;
};

// The part of c at (row, column), of at most a block.
struct Part {
  Part(const Gemm& product, const Blocks& blocks, int64_t task)
      : gemm(product),
        row(task % blocks.row_blocks * blocks.rows),
        column(task / blocks.row_blocks * blocks.columns),
        rows(std::min(blocks.rows, gemm.m - row)),
        columns(std::min(blocks.columns, gemm.n - column)) {}

  [[nodiscard]] char* c_row(int64_t i) const {
    return static_cast<char*>(gemm.c) + ((row + i) * gemm.ldc + column) * size_of(gemm.c_dtype);
  }

  void load(float* block, int64_t ld) const {
    const VectorMath& math = vector_math(best_isa());
    for (int64_t i = 0; i < rows; ++i) {
      if (gemm.c_dtype == DType::float32) {
        std::memcpy(block + i * ld, c_row(i), static_cast<size_t>(columns) * sizeof(float));
      } else {
        math.widen(block + i * ld, reinterpret_cast<const bfloat16*>(c_row(i)), columns);
      }
    }
  }

  void store(const float* block, int64_t ld) const {
    const VectorMath& math = vector_math(best_isa());
    for (int64_t i = 0; i < rows; ++i) {
      if (gemm.c_dtype == DType::float32) {
        std::memcpy(c_row(i), block + i * ld, static_cast<size_t>(columns) * sizeof(float));
      } else {
        math.round(reinterpret_cast<bfloat16*>(c_row(i)), block + i * ld, columns);
      }
    }
  }

  [[nodiscard]] amx::Block lines_of_a(int64_t term, int64_t terms) const {
    return {.source = static_cast<const bfloat16*>(gemm.a) + row * (gemm.transpose_a ? 1 : gemm.lda) +
                      term * (gemm.transpose_a ? gemm.lda : 1),
            .ld = gemm.lda,
            .lines_are_columns = gemm.transpose_a,
            .lines = rows,
            .terms = terms};
  }

  [[nodiscard]] amx::Block lines_of_b(int64_t term, int64_t terms) const {
    return {.source = static_cast<const bfloat16*>(gemm.b) + column * (gemm.transpose_b ? gemm.ldb : 1) +
                      term * (gemm.transpose_b ? 1 : gemm.ldb),
            .ld = gemm.ldb,
            .lines_are_columns = !gemm.transpose_b,
            .lines = columns,
            .terms = terms};
  }

  // Where a block lies; nothing if it has no terms.
  static amx::Ahead ahead(const amx::Block& block) {
    if (block.terms <= 0) return {};
    const int64_t rows = block.lines_are_columns ? block.terms : block.lines;
    return {block.source, rows, (block.lines_are_columns ? block.lines : block.terms) * 2, block.ld * 2};
  }

  // `next` is what the thread does after this one, or null.
  void multiply(const Blocks& blocks, const Scratch& scratch, const Part* next) const {
    // Whole panels of float32 are summed where they are, unless so often that rows a power of two apart cost more than
    // a copy.
    const bool in_place = gemm.c_dtype == DType::float32 && rows % amx::panel_lines == 0 &&
                          columns % amx::panel_lines == 0 && gemm.k <= most_passes_in_place * blocks.terms;
    float* const c = in_place ? reinterpret_cast<float*>(c_row(0)) : scratch.c;
    const int64_t ldc = in_place ? gemm.ldc : blocks.c_stride();
    if (!in_place && gemm.accumulate) load(c, ldc);
    for (int64_t term = 0; term < gemm.k; term += blocks.terms) {
      const int64_t terms = std::min(blocks.terms, gemm.k - term);
      amx::pack_a(scratch.a, lines_of_a(term, terms));
      amx::pack_b(scratch.b, lines_of_b(term, terms));
      const bool is_last = term + blocks.terms >= gemm.k;
      const Part* const then = is_last ? next : this;
      const int64_t next_term = is_last ? 0 : term + blocks.terms;
      const int64_t next_terms = then == nullptr ? 0 : std::min(blocks.terms, gemm.k - next_term);
      amx::multiply({.c = c,
                     .ldc = ldc,
                     .a = scratch.a,
                     .b = scratch.b,
                     .a_panels = ceil_divide(rows, amx::panel_lines),
                     .b_panels = ceil_divide(columns, amx::panel_lines),
                     .steps = ceil_divide(terms, amx::step_terms),
                     .accumulate = gemm.accumulate || term > 0},
                    {ahead(then == nullptr ? amx::Block{} : then->lines_of_a(next_term, next_terms)),
                     ahead(then == nullptr ? amx::Block{} : then->lines_of_b(next_term, next_terms))});
    }
    if (!in_place) store(c, ldc);
  }

  const Gemm& gemm;
  int64_t row, column, rows, columns;
};

// Linux gives the tile registers to processes that ask for them (Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
#ifdef SYS_arch_prctl
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace

bool multiplies_in_tiles() {
  static const bool answer = isa_bound() == IsaBound::none && has(Isa::v4) &&
                             __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("amx-tile") != 0 &&
                             __builtin_cpu_supports("amx-bf16") != 0 && may_use_tiles();
  return answer;
}

int64_t gemm_in_tiles_scratch_bytes(const Gemm& gemm, int threads) {
  const Blocks blocks(gemm, threads);
  return std::min<int64_t>(threads, blocks.tasks()) * Scratch(blocks, nullptr).bytes;
}

void run_gemm_in_tiles(const Gemm& gemm, void* memory, int threads) {
  const Blocks blocks(gemm, threads);
  const int64_t workers = std::min<int64_t>(threads, blocks.tasks()), bytes = Scratch(blocks, nullptr).bytes;
  parallel_for(threads, workers, [&](int64_t worker) {
    const Scratch scratch(blocks, static_cast<char*>(memory) + worker * bytes);
    for (int64_t task = worker; task < blocks.tasks(); task += workers) {
      const Part part(gemm, blocks, task);
      if (task + workers < blocks.tasks()) {
        const Part next(gemm, blocks, task + workers);
        part.multiply(blocks, scratch, &next);
      } else {
        part.multiply(blocks, scratch, nullptr);
      }
    }
  });
}

}  // namespace annulus::cpu
