#include <gtest/gtest.h>

#include <vector>

#include "parallel/sharded_parameters.h"
#include "tests/support/ranks.h"

namespace annulus {
namespace {

std::vector<ParameterUnit> two_units() {
  std::vector<ParameterUnit> units(2);
  units[0].add({.name = "a", .shape = {7, 5}});
  units[0].add({.name = "b", .shape = {3}, .decayed = false});
  units[1].add({.name = "c", .shape = {101, 3}});
  units[1].add({.name = "d", .shape = {2, 3}, .adjacent = true});
  return units;
}

// A value that tells which element of which parameter it is.
float mark(const Parameter& parameter, int64_t element) {
  return static_cast<float>(parameter.name[0]) + static_cast<float>(element) / 1024;
}

TEST(ParameterUnit, ShardsHoldEveryElementOnce) {
  for (const ParameterUnit& unit : two_units()) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::vector<std::vector<int>> found;
      for (const Parameter& parameter : unit.parameters()) found.emplace_back(parameter.elements(), 0);
      for (int rank = 0; rank < ranks; ++rank) {
        for (const ParameterPart& part : parts_in_shard(unit, rank, ranks)) {
          EXPECT_LE(part.offset + part.count, unit.shard_elements(ranks));
          const auto index = static_cast<size_t>(part.parameter - unit.parameters().data());
          for (int64_t i = 0; i < part.count; ++i) ++found[index][static_cast<size_t>(part.first + i)];
        }
      }
      for (const auto& counts : found) {
        for (const int count : counts) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(ParameterUnit, AdjacentMatricesAreOne) {
  const ParameterUnit unit = two_units()[1];
  std::vector<float> flat(static_cast<size_t>(unit.elements()));
  const View joined = unit.joined_view({flat.data(), DType::float32, {unit.elements()}}, 0, 1);
  EXPECT_EQ(joined.shape(), (Shape{103, 3}));
}

class ShardedParametersAt : public testing::TestWithParam<int> {};

TEST_P(ShardedParametersAt, GatheringGivesTheWholeUnitOnEveryRank) {
  run_ranks(GetParam(), [](Device& device, Transport& transport) {
    const Stream stream = device.compute_stream();
    ShardedParameters parameters(device, transport, DType::float32, two_units(), {}, stream);
    for (size_t unit = 0; unit < 2; ++unit) {
      const View master = parameters.shard(unit).master.view();
      std::vector<float> marks(static_cast<size_t>(master.elements()));
      for (const ParameterPart& part : parameters.shard(unit).parts) {
        for (int64_t i = 0; i < part.count; ++i) {
          marks[static_cast<size_t>(part.offset + i)] = mark(*part.parameter, part.first + i);
        }
      }
      upload(device, master, marks);
    }
    for (const size_t unit : {0U, 1U, 0U}) {
      const View flat = parameters.weights(unit, stream);
      parameters.prefetch(1 - unit, stream);
      const auto& described = parameters.units()[unit];
      for (size_t index = 0; index < described.parameters().size(); ++index) {
        const std::vector<float> values = downloaded<float>(device, described.view(flat, index));
        for (size_t i = 0; i < values.size(); ++i) {
          EXPECT_EQ(values[i], mark(described.parameters()[index], static_cast<int64_t>(i)));
        }
      }
      parameters.drop(unit);
    }
    parameters.weights(0, stream);
    parameters.weights(1, stream);
    parameters.drop(0);
    parameters.drop(1);
  });
}

// Two uses of each unit on every rank; the shards then hold the sum over uses and ranks.
TEST_P(ShardedParametersAt, GradientsAreSummedOverRanksAndUses) {
  const int ranks = GetParam();
  run_ranks(ranks, [ranks](Device& device, Transport& transport) {
    const Stream stream = device.compute_stream();
    ShardedParameters parameters(device, transport, DType::float32, two_units(), {}, stream);
    parameters.clear_gradients(stream);
    for (const size_t unit : {0U, 1U, 1U, 0U}) {
      const View flat = parameters.gradient(unit, stream);
      const auto& described = parameters.units()[unit];
      for (size_t index = 0; index < described.parameters().size(); ++index) {
        const View view = described.view(flat, index);
        std::vector<float> values = downloaded<float>(device, view);
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] += static_cast<float>(transport.rank() + 1) * static_cast<float>(i + 1);
        }
        upload(device, view, values);
      }
      parameters.reduce(unit, stream);
    }
    parameters.finish_gradients(stream);
    const float times = 2 * static_cast<float>(ranks * (ranks + 1)) / 2;
    for (size_t unit = 0; unit < 2; ++unit) {
      const std::vector<float> gradient = downloaded<float>(device, parameters.shard(unit).gradient.view());
      for (const ParameterPart& part : parameters.shard(unit).parts) {
        for (int64_t i = 0; i < part.count; ++i) {
          EXPECT_EQ(gradient[static_cast<size_t>(part.offset + i)], times * static_cast<float>(part.first + i + 1));
        }
      }
    }
  });
}

// The sum of squares over all shards counts every parameter once, whatever the number of ranks.
TEST_P(ShardedParametersAt, PaddingDoesNotCountInTheNorm) {
  run_ranks(GetParam(), [](Device& device, Transport& transport) {
    const Stream stream = device.compute_stream();
    ShardedParameters parameters(device, transport, DType::float32, two_units(), {}, stream);
    parameters.clear_gradients(stream);
    const Tensor squares = device.allocate({transport.size(), 1}, DType::float64, Purpose::staging);
    device.fill_zero(squares, stream);
    int64_t elements = 0;
    for (size_t unit = 0; unit < 2; ++unit) {
      for (const Parameter& parameter : parameters.units()[unit].parameters()) elements += parameter.elements();
      const View gradient = parameters.shard(unit).gradient.view();
      std::vector<float> ones = downloaded<float>(device, gradient);
      for (const ParameterPart& part : parameters.shard(unit).parts)
        std::fill_n(ones.begin() + part.offset, part.count, 1.0F);
      upload(device, gradient, ones);
      device.sum_of_squares(squares->slice(transport.rank(), transport.rank() + 1).flat(), gradient, stream);
    }
    gather_rows(squares, transport, stream);
    double total = 0;
    for (const double square : downloaded<double>(device, squares)) total += square;
    EXPECT_EQ(total, static_cast<double>(elements));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedParametersAt, testing::Values(1, 2, 3, 4, 7));

}  // namespace
}  // namespace annulus
