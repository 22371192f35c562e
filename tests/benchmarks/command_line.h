// What the command lines of the benchmarks share.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/benchmarks/table.h"

namespace annulus {

// Of a benchmark of one device.
struct DeviceWords {
  std::string name = "cuda";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<std::string> dtypes = {"bfloat16"};
  std::vector<int64_t> tokens, products;
  double seconds = 0.1;

  void add_to(CLI::App& app) {
    app.add_option("--device", name, "what is measured")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
    app.add_option("--threads", threads, "of the CPU")->check(CLI::PositiveNumber);
    app.add_option("--dtypes", dtypes)->check(CLI::IsMember({"bfloat16", "float32"}))->capture_default_str();
    app.add_option("--tokens", tokens, "lengths of a sequence")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--products", products, "sizes of cubic products")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--seconds", seconds, "that each of the five repetitions takes at least")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
  }

  [[nodiscard]] std::unique_ptr<Device> device() const { return make_device(name, threads); }
};

// The main of a benchmark: `run`, its errors in one line.
inline int run_benchmark(const char* program, int argc, char** argv, int (*run)(int argc, char** argv)) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: error: {}\n", program, error.what());
    return 1;
  }
}

}  // namespace annulus
