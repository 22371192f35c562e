#include "runtime/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "runtime/checkpoint.h"
#include "runtime/model/units.h"
#include "runtime/optimizer.h"

namespace annulus {

Trainer::Trainer(PreparedRun& run, Device& device, Transport& transport, Listener& listener)
    : run_(run),
      device_(device),
      transport_(transport),
      listener_(listener),
      stream_(device.compute_stream()),
      parameters_(device, transport, run.settings.model.dtype, qwen3_units(run.model), run.memory.parameters, stream_),
      attention_(device, transport, run.mesh),
      decoder_(run.model, device, attention_, parameters_, run.settings.model.dtype, run.memory),
      batches_(run.settings, run.model, run.mesh, device) {}

void Trainer::set_weights() {
  listener_.entered(Phase::load, 0);
  const ModelSettings& model = run_.settings.model;
  if (model.init == Initialization::random) {
    random_weights(model.seed, run_.model.initializer_range, parameters_, device_, stream_);
  } else {
    load_weights(open_weights(model.path, run_.model), parameters_, device_, stream_);
  }
}

StepReport Trainer::step(int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  device_.clock().take();
  device_.memory().enter(Section::step);
  const OptimizerSettings& optimizer = run_.settings.optimizer;
  const double rate = learning_rate(optimizer, step, run_.settings.train.steps);
  const Tensor rows = device_.allocate({transport_.size(), figures}, DType::float64, Purpose::staging);
  const Tensor totals = device_.allocate({figures}, DType::float64, Purpose::staging);
  const Tensor norm = device_.allocate({1}, DType::float64, Purpose::staging);
  const Tensor scale = device_.allocate({1}, DType::float32, Purpose::staging);
  const Tensor seconds = device_.allocate({transport_.size(), seconds_of_rank}, DType::float64, Purpose::staging);
  const View own = rows->slice(transport_.rank(), transport_.rank() + 1).flat();
  const auto figure = [](const View& view, Figure index) { return view.slice(index, index + 1); };

  // 1. The gradient of the sum of all token losses, summed over micro-batches and ranks into the shards.
  accumulate_gradients(step, own);

  // 2. What every rank has to know of the others: one exchange of a few numbers.
  listener_.entered(Phase::optimizer, step);
  add_sum_of_squares(parameters_, device_, figure(own, squares), stream_);
  gather_rows(rows, transport_, stream_);
  device_.sum_rows(totals, rows, stream_);

  // 3. One normalisation and one clip factor, then AdamW; a gradient that is not finite leaves the weights alone.
  device_.gradient_scale({.scale = scale,
                          .norm = norm,
                          .sum_of_squares = figure(totals, squares),
                          .denominator = figure(totals, answers),
                          .max_norm = optimizer.max_grad_norm},
                         stream_);
  update(parameters_, device_, optimizer, step, rate, scale, stream_);

  // 4. The host looks at the outcome.
  Outcome outcome{std::vector<double>(static_cast<size_t>(rows->elements())), std::vector<double>(figures)};
  device_.download(outcome.rows.data(), rows, stream_);
  device_.download(outcome.totals.data(), totals, stream_);
  device_.download(&outcome.norm, norm, stream_);
  check(step, outcome);
  answers_ = outcome.totals[answers];
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  StepReport report{.step = step,
                    .steps = run_.settings.train.steps,
                    .loss = outcome.totals[loss] / answers_,
                    .grad_norm = outcome.norm,
                    .learning_rate = rate,
                    .label_tokens = static_cast<int64_t>(answers_),
                    .tokens = static_cast<int64_t>(outcome.totals[tokens]),
                    .seconds = elapsed.count()};
  for (int64_t rank = 0; rank < transport_.size(); ++rank) {
    const double peak = outcome.rows[static_cast<size_t>(rank * figures + peak_bytes)];
    report.peak_bytes = std::max(report.peak_bytes, static_cast<int64_t>(peak));
  }
  report.ranks = gather_seconds(seconds, report.seconds);
  return report;
}

std::vector<StepReport::Seconds> Trainer::gather_seconds(const View& rows, double elapsed) {
  const ActivitySeconds spent = device_.clock().take();
  const StepReport::Seconds own = {.attention = spent.attention,
                                   .compute = elapsed - spent.attention - spent.communication,
                                   .exposed = spent.communication};
  device_.upload(rows.slice(transport_.rank(), transport_.rank() + 1), &own, stream_);
  gather_rows(rows, transport_, stream_);
  std::vector<StepReport::Seconds> all(static_cast<size_t>(transport_.size()));
  device_.download(all.data(), rows, stream_);
  return all;
}

void Trainer::accumulate_gradients(int64_t step, const View& own_figures) {
  parameters_.clear_gradients(stream_);
  device_.fill_zero(own_figures, stream_);
  int64_t own_answers = 0, own_tokens = 0;
  const View loss_sum = own_figures.slice(loss, loss + 1);
  for (int64_t index = 0; index < run_.micro_batches(); ++index) {
    device_.memory().enter(Section::micro_batch);
    listener_.entered(Phase::data, step);
    const MicroBatch batch = batches_.build(read_sequences(step, index), stream_);
    own_answers += batch.answer_count;
    own_tokens += batch.live_tokens;
    listener_.entered(Phase::forward, step);
    decoder_.forward_backward(batch, loss_sum, stream_, [&] { listener_.entered(Phase::backward, step); });
  }
  device_.memory().enter(Section::update);
  parameters_.finish_gradients(stream_);
  const auto set = [&](Figure index, int64_t value) {
    const auto number = static_cast<double>(value);
    device_.upload(own_figures.slice(index, index + 1), &number, stream_);
  };
  set(answers, own_answers);
  set(tokens, own_tokens);
  set(peak_bytes, device_.memory().peak_bytes());
}

// The places of a step, in order of sequences, go round the data groups micro-batch by micro-batch; places past the
// step's last sequence stay empty.
std::vector<std::optional<Sequence>> Trainer::read_sequences(int64_t step, int64_t micro_batch) const {
  const TrainSettings& train = run_.settings.train;
  const int64_t first = (micro_batch * run_.mesh.data_size + run_.mesh.data()) * train.micro_batch_size;
  std::vector<std::optional<Sequence>> sequences(static_cast<size_t>(train.micro_batch_size));
  for (int64_t place = 0; place < train.micro_batch_size; ++place) {
    if (first + place >= train.global_batch_size) continue;
    const int64_t position = (step - 1) * train.global_batch_size + first + place;
    sequences[static_cast<size_t>(place)] = run_.sequences->read(run_.sequences->at(position));
  }
  return sequences;
}

void Trainer::check(int64_t step, const Outcome& outcome) const {
  if (outcome.totals[answers] == 0) {
    throw DataError(
        fmt::format("step {}: none of its sequences has a token with an answer; check the labels in '{}'{}", step,
                    run_.settings.data.train.string(),
                    run_.sequences->left_out() == 0
                        ? ""
                        : ", and data.sequence_length, where documents are cut off with data.packing=none"));
  }
  if (std::isfinite(outcome.norm) && std::isfinite(outcome.totals[loss])) return;
  std::string ranks;
  for (int64_t rank = 0; rank < transport_.size(); ++rank) {
    if (std::isfinite(outcome.rows[static_cast<size_t>(rank * figures + loss)])) continue;
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  }
  const std::string place = ranks.empty() ? "every rank's loss is finite" : "the loss is not finite on rank " + ranks;
  throw Error(fmt::format("step {}: the gradient is not finite ({}); the weights are those of step {}. A lower "
                          "optimizer.learning_rate or a longer optimizer.warmup_steps often helps",
                          step, place, step - 1),
              ExitCode::failure, SourceLocation::current());
}

void Trainer::rehearse_set_weights() {
  rehearse_loading(parameters_, device_);
}

void Trainer::rehearse_save() {
  const SavingRoom room(parameters_, device_, transport_);
}

void Trainer::save_gradients(const std::filesystem::path& path) {
  save_tensors(path,
               {.select = [](const ParameterShard& shard) -> const ShardTensor& { return shard.gradient; },
                .scale = 1 / answers_},
               parameters_, device_, transport_, stream_);
}

void Trainer::save_model(const std::filesystem::path& directory) {
  annulus::save_model({.directory = directory,
                       .source = run_.settings.model.path,
                       .dtype = run_.settings.model.dtype,
                       .max_shard_bytes = run_.settings.output.max_shard_size},
                      parameters_, device_, transport_, stream_);
}

}  // namespace annulus
