// How fast the operations of a device are, against roofs measured in the same process: the best rate of a cubic
// product, and that of a copy. Prints a Markdown table.
//
//   kernels_benchmark --device cuda
//   kernels_benchmark --device cpu --threads 8 --tokens 1024 2048 --products 512 1024
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/benchmarks/command_line.h"
#include "tests/benchmarks/operations.h"

namespace annulus {
namespace {

int run(int argc, char** argv) {
  DeviceWords words{.tokens = {2048, 4096, 8192, 16384, 32768, 65536, 131072}, .products = {2048, 4096, 8192, 16384}};
  std::vector<std::string> masks = {"causal"};
  std::vector<int64_t> rows = {16384};
  CLI::App app("Measures the operations of a device against its matrix products and its copies.");
  app.add_option("--masks", masks, "of attention; a window sees 1024 keys")
      ->check(CLI::IsMember({"causal", "full", "window"}))
      ->capture_default_str();
  app.add_option("--rows", rows, "of every other operation")->check(CLI::PositiveNumber)->capture_default_str();
  words.add_to(app);
  CLI11_PARSE(app, argc, argv);

  const std::unique_ptr<Device> device = words.device();
  fmt::print("{}\n\n", device->description());
  Table table(*device, {.seconds = words.seconds});
  for (const std::string& dtype_name : words.dtypes) {
    const DType dtype = dtype_named(dtype_name);
    add_products(table, dtype, words.products);
    for (const std::string& mask : masks) add_attention(table, dtype, {mask}, words.tokens);
    add_passes(table, dtype, rows);
  }
  table.measure();
  table.print();
  return 0;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  return annulus::run_benchmark("kernels_benchmark", argc, argv, annulus::run);
}
