// One table of measurements: each operation's rate, and what part that is of its roof, the best rate that operations of
// its kind reached in the same process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace annulus {

// "cuda", or "cpu" with so many threads.
std::unique_ptr<Device> make_device(const std::string& name, int threads);

DType dtype_named(const std::string& name);  // "float32" or "bfloat16"

enum class Work : uint8_t { flops, bytes };

// Numbers for an operation to work on; they live as long as the workbench.
class Workbench {
 public:
  explicit Workbench(Device& device) : device_(device) {}

  [[nodiscard]] Device& device() { return device_; }
  View room(const Shape& shape, DType dtype);                           // zeros
  View numbers(const Shape& shape, DType dtype, double deviation = 1);  // normal, with mean 0

  // What was uploaded from `values`.
  template <class T>
  View upload(const Shape& shape, const std::vector<T>& values) {
    const View view = room(shape, dtype_of<T>());
    device_.upload(view, values.data(), {});
    return view;
  }

 private:
  Device& device_;
  std::vector<Tensor> tensors_;
};

struct Operation {
  double work = 0;  // floating-point operations, or bytes that have to be read and written, of one call
  std::function<void()> call;
};

// One of the five of each operation: so many calls, the operations one after the other as they were added, so that
// ranks can meet in them; or, where calls is 0, as many as take these seconds, in an order by chance among all.
struct Repetition {
  double seconds = 0.1;
  int64_t calls = 0;
};

class Table {
 public:
  using Make = std::function<Operation(Workbench&, int64_t size)>;

  Table(Device& device, Repetition repetition) : device_(device), repetition_(repetition) {}

  // What operations of this kind of work and dtype are measured against.
  void add_roof(const std::string& name, Work work, DType dtype, const std::vector<int64_t>& sizes, Make make);

  // There must be a roof of the same work and dtype.
  void add(const std::string& name, Work work, DType dtype, const std::vector<int64_t>& sizes, Make make);

  // The median of five repetitions of every operation.
  void measure();

  // As Markdown.
  void print() const;

 private:
  struct Row {
    std::string name;
    Work work = Work::flops;
    DType dtype = DType::float32;
    int64_t size = 0;
    bool roof = false;
    double rate = 0;   // median, of work a second
    double calls = 0;  // a second
  };

  void add_rows(bool roof, const std::string& name, Work work, DType dtype, const std::vector<int64_t>& sizes,
                const Make& make);
  [[nodiscard]] const Row& roof_of(Work work, DType dtype) const;

  Device& device_;
  Repetition repetition_;
  std::vector<Row> rows_;
};

}  // namespace annulus
