// How fast the operations of a device are, against roofs measured in the same process: the best rate of a cubic
// product, and that of a copy. Prints a Markdown table.
//
//   kernels_benchmark --device cuda
//   kernels_benchmark --device cpu --threads 8 --tokens 1024 2048 --products 512 1024
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/benchmarks/operations.h"

namespace annulus {
namespace {

int run(int argc, char** argv) {
  std::string name = "cuda";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<std::string> dtypes = {"bfloat16"}, masks = {"causal"};
  std::vector<int64_t> tokens = {2048, 4096, 8192, 16384, 32768, 65536, 131072};
  std::vector<int64_t> products = {2048, 4096, 8192, 16384}, rows = {16384};
  double seconds = 0.1;
  CLI::App app("Measures the operations of a device against its matrix products and its copies.");
  app.add_option("--device", name, "what is measured")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--threads", threads, "of the CPU")->check(CLI::PositiveNumber);
  app.add_option("--dtypes", dtypes)->check(CLI::IsMember({"bfloat16", "float32"}))->capture_default_str();
  app.add_option("--masks", masks, "of attention; a window sees 1024 keys")
      ->check(CLI::IsMember({"causal", "full", "window"}))
      ->capture_default_str();
  app.add_option("--tokens", tokens, "lengths of attention")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--products", products, "sizes of cubic products")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rows", rows, "of every other operation")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seconds", seconds, "that each of the five repetitions takes at least")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const std::unique_ptr<Device> device = make_device(name, threads);
  fmt::print("{}\n\n", device->description());
  Table table(*device, {.seconds = seconds});
  for (const std::string& dtype_name : dtypes) {
    const DType dtype = dtype_named(dtype_name);
    add_products(table, dtype, products);
    for (const std::string& mask : masks) add_attention(table, dtype, {mask}, tokens);
    add_passes(table, dtype, rows);
  }
  table.measure();
  table.print();
  return 0;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  try {
    return annulus::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernels_benchmark: error: {}\n", error.what());
    return 1;
  }
}
