#include "launcher/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/error.h"
#include "parallel/sharded_parameters.h"

namespace annulus {
namespace {

// What every rank says, by rank; exact up to 2^53.
std::vector<double> gather(double value, Transport& transport) {
  std::vector<double> values(static_cast<size_t>(transport.size()));
  values[static_cast<size_t>(transport.rank())] = value;
  gather_rows({values.data(), DType::float64, {transport.size(), 1}}, transport, {});
  return values;
}

// FNV-1a (Fowler, Noll, Vo), its upper 52 bits: the same in every process, which std::hash does not promise.
double hash(const std::string& text) {
  uint64_t value = 0xCBF29CE484222325;
  for (const unsigned char letter : text) value = (value ^ letter) * 0x100000001B3;
  return static_cast<double>(value >> 12);
}

}  // namespace

int64_t smallest_of_all(int64_t value, Transport& transport) {
  return static_cast<int64_t>(std::ranges::min(gather(static_cast<double>(value), transport)));
}

void require_agreement(const std::string& text, Transport& transport) {
  const std::vector<double> hashes = gather(hash(text), transport);
  std::string others;
  for (size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) others += fmt::format("{}{}", others.empty() ? "" : ", ", rank);
  }
  if (others.empty()) return;
  throw ConfigurationError(fmt::format(
      "rank {} has other settings, another model configuration or other data than rank 0; give every rank, on every "
      "machine, the same command line, configuration file, config.json and data",
      others));
}

}  // namespace annulus
