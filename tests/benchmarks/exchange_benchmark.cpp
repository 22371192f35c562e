// How fast ranks pass keys around the ring over MPI, against a copy that all of them make at the same time. Each rank
// sends to the next and receives from the one before it; the bytes it receives count twice, as read and as written.
// Rank 0 prints a Markdown table.
//
//   mpirun -n 2 exchange_benchmark --rows 1024 16384
#include <fmt/format.h>

#include <array>
#include <memory>
#include <vector>

#include "parallel/transports.h"
#include "tests/benchmarks/command_line.h"
#include "tests/benchmarks/operations.h"

namespace annulus {
namespace {

constexpr int64_t kv_heads = 8, head_dim = 128, calls = 20;

Operation copy(Workbench& bench, Transport& transport, int64_t rows) {
  const View source = bench.numbers({rows, kv_heads, head_dim}, DType::bfloat16);
  const View destination = bench.room(source.shape(), DType::bfloat16);
  return {static_cast<double>(4 * source.bytes()), [=, &device = bench.device(), &transport] {
            transport.barrier();
            device.copy(destination, source, {});
            device.copy(destination, source, {});
          }};
}

Operation ring_exchange(Workbench& bench, Transport& transport, int64_t rows) {
  const Shape shape{rows, kv_heads, head_dim};
  const std::array<View, 2> sent = {bench.numbers(shape, DType::bfloat16), bench.numbers(shape, DType::bfloat16)};
  const std::array<View, 2> received = {bench.room(shape, DType::bfloat16), bench.room(shape, DType::bfloat16)};
  const int next = (transport.rank() + 1) % transport.size();
  const int previous = (transport.rank() + transport.size() - 1) % transport.size();
  return {static_cast<double>(2 * (received[0].bytes() + received[1].bytes())), [=, &transport] {
            const std::array<Message, 2> sends = {Message{next, sent[0]}, Message{next, sent[1]}};
            const std::array<Message, 2> receives = {Message{previous, received[0]}, Message{previous, received[1]}};
            transport.exchange(sends, receives, Channel::keys, {}).wait({});
          }};
}

int run(int argc, char** argv) {
  std::vector<int64_t> sizes = {256, 1024, 4096, 16384};
  CLI::App app("Measures the ring exchange between ranks over MPI against a copy.");
  app.add_option("--rows", sizes, "of keys and of values, 2 KiB each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const MpiSession session;
  if (session.size() < 2) throw ConfigurationError("there is one rank alone; start it with mpirun -n 2");
  const std::unique_ptr<Transport> transport = session.transport();
  const std::unique_ptr<Device> device = make_cpu_device({.threads = 1});
  Table table(*device, {.calls = calls});
  const auto bind = [&](Operation (*make)(Workbench&, Transport&, int64_t)) {
    return [&, make](Workbench& bench, int64_t rows) { return make(bench, *transport, rows); };
  };
  table.add_roof("copy", Work::bytes, DType::bfloat16, sizes, bind(copy));
  table.add("ring exchange", Work::bytes, DType::bfloat16, sizes, bind(ring_exchange));
  table.measure();
  if (transport->rank() == 0) {
    fmt::print("{}, {} ranks\n\n", device->description(), transport->size());
    table.print();
  }
  return 0;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  return annulus::run_benchmark("exchange_benchmark", argc, argv, annulus::run);
}
