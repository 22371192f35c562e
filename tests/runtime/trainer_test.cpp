// A step that cannot be right is one decision of all ranks, and changes nothing.
#include "runtime/trainer.h"
#include "runtime/model/units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/error.h"
#include "parallel/transports.h"
#include "runtime/run.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace annulus {
namespace {

// What this rank's shards hold of every unit.
struct ShardValues {
  std::vector<float> master, moment1, moment2;
};

ShardValues shard_values(Trainer& trainer, Device& device) {
  ShardValues all;
  const auto append = [&](std::vector<float>& to, const View& view) {
    std::vector<float> values(static_cast<size_t>(view.elements()));
    device.download(values.data(), view, device.compute_stream());
    to.insert(to.end(), values.begin(), values.end());
  };
  for (size_t unit = 0; unit < trainer.parameters().units().size(); ++unit) {
    const ParameterShard& shard = trainer.parameters().shard(unit);
    for (const ParameterPart& part : shard.parts) {
      const auto values_of = [&](const ShardTensor& tensor) {
        return tensor.view().slice(part.offset, part.offset + part.count);
      };
      append(all.master, values_of(shard.master));
      append(all.moment1, values_of(shard.moment1));
      append(all.moment2, values_of(shard.moment2));
    }
  }
  return all;
}

class FailingStep : public testing::TestWithParam<int> {
 protected:
  static constexpr TinyModel model{.vocabulary = 101, .tied = false};
  static constexpr int64_t length = 24;
  static constexpr int32_t rare_token = 100;

  // Two sequences of one document each; the rare token only in the second, in rows that the last of the ranks holds.
  FailingStep() {
    std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{length, length}, rare_token, 1);
    documents[1].input_ids[length - 2] = rare_token;
    write(documents);
    settings_.model.path = directory_ / "model";
    settings_.model.dtype = DType::float32;
    settings_.data = {.train = directory_ / "documents.jsonl", .sequence_length = length, .shuffle = false};
    settings_.parallel.layout = LayoutKind::contiguous;
    settings_.optimizer.schedule = ScheduleKind::constant;
    settings_.optimizer.learning_rate = 1e-2;
    settings_.train.steps = 2;
    settings_.output.directory = directory_ / "output";
  }

  void write(const std::vector<TinyDocument>& documents) { write_documents(directory_ / "documents.jsonl", documents); }

  // The embedding's row `token` becomes NaN. Nothing but the rows that hold the token ever reads it.
  static void damage(Trainer& trainer, int32_t token) {
    const ParameterShard& shard = trainer.parameters().shard(embedding_unit());
    for (const ParameterPart& part : shard.parts) {
      for (int64_t i = 0; i < part.count; ++i) {
        if ((part.first + i) / model.hidden != token) continue;
        shard.master.view().as<float>()[part.offset + i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  // Two steps on GetParam() ranks, the second of which fails: what each rank is told then.
  std::vector<std::string> errors_of_second_step(std::optional<int32_t> damaged_token = std::nullopt) {
    std::vector<std::string> errors(static_cast<size_t>(GetParam()));
    run_as_threads(GetParam(), [&](Transport& transport) {
      const std::unique_ptr<Device> device = make_cpu_device({.threads = 1});
      PreparedRun run = prepare(settings_, transport.rank(), transport.size());
      Listener listener;
      Trainer trainer(run, *device, transport, listener);
      trainer.set_weights();
      if (damaged_token) damage(trainer, *damaged_token);
      trainer.step(1);
      const ShardValues before = shard_values(trainer, *device);
      try {
        trainer.step(2);
      } catch (const Error& error) {
        errors[static_cast<size_t>(transport.rank())] = error.what();
      }
      EXPECT_TRUE(equal_bits(shard_values(trainer, *device), before)) << "rank " << transport.rank();
    });
    return errors;
  }

  // NaN equals itself here.
  static bool equal_bits(const ShardValues& a, const ShardValues& b) {
    const auto equal = [](const std::vector<float>& x, const std::vector<float>& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
    };
    return equal(a.master, b.master) && equal(a.moment1, b.moment1) && equal(a.moment2, b.moment2);
  }

  TemporaryDirectory directory_;
  Settings settings_;
};

TEST_P(FailingStep, WithNaNOnOneRankIsTheSameErrorOnAllAndLeavesTheWeights) {
  write_model(directory_ / "model", model, 2);
  const std::vector<std::string> errors = errors_of_second_step(rare_token);
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
  const std::string last = std::to_string(GetParam() - 1);
  expect_says(errors[0], {"step 2", "not finite on rank " + last, "weights are those of step 1", "learning_rate"});
}

TEST_P(FailingStep, WithoutAnyAnswerIsTheSameErrorOnAllAndLeavesTheWeights) {
  write_model(directory_ / "model", model, 2);
  std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{length, length}, rare_token, 1);
  std::fill(documents[1].labels.begin(), documents[1].labels.end(), -100);
  write(documents);
  const std::vector<std::string> errors = errors_of_second_step();
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
  expect_says(errors[0], {"step 2", "answer", settings_.data.train.string()});
}

INSTANTIATE_TEST_SUITE_P(Ranks, FailingStep, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

}  // namespace
}  // namespace annulus
