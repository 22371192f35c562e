// How fast a whole decoder layer of Qwen3-0.6B goes forward and backward on one rank, against the best rate of a cubic
// product measured in the same process. Causal; nothing is computed twice. Counts 6 floating-point operations a
// parameter and token, and three times attention's forward over visible pairs. Prints a Markdown table.
//
//   layer_benchmark --device cpu --threads 2 --tokens 4096 --products 2048
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/transports.h"
#include "runtime/model/decoder_layer.h"
#include "tests/benchmarks/command_line.h"
#include "tests/benchmarks/operations.h"

namespace annulus {
namespace {

const ModelConfig model = {.vocabulary = 1,
                           .hidden = 1024,
                           .intermediate = 3072,
                           .layers = 1,
                           .heads = 16,
                           .kv_heads = 8,
                           .head_dim = 128,
                           .rope_theta = 1e6,
                           .tied = true,
                           .layer_windows = {0}};

class Layer {
 public:
  Layer(Workbench& bench, Transport& transport, DType dtype, int64_t tokens)
      : device_(bench.device()),
        dtype_(dtype),
        rule_{.mlp_rows = tokens, .logits_rows = tokens, .parameters = {}},
        attention_(device_, transport, {}),
        layer_(model, device_, attention_, rule_),
        unit_(qwen3_units(model)[layer_unit(0)]),
        weights_(unit_, bench.numbers({unit_.elements()}, dtype, model.initializer_range)),
        gradients_(unit_, bench.room({unit_.elements()}, DType::float32)),
        input_(bench.numbers({tokens, model.hidden}, dtype)),
        output_(bench.room(input_.shape(), dtype)),
        output_gradient_(bench.numbers(input_.shape(), dtype)),
        gradient_(bench.room(input_.shape(), dtype)) {
    std::vector<KeyRanges> mask;
    std::vector<int32_t> positions;
    for (int64_t row = 0; row < tokens; ++row) {
      mask.push_back(Mask{"causal"}.keys(row, tokens));
      positions.push_back(static_cast<int32_t>(row));
    }
    const SequenceLayout layout(LayoutKind::contiguous, 1, 1, tokens);
    batch_.cosine = device_.allocate({tokens, model.head_dim / 2}, DType::float32, Purpose::staging);
    batch_.sine = device_.allocate(batch_.cosine->shape(), DType::float32, Purpose::staging);
    device_.rotary_angles(batch_.cosine, batch_.sine, bench.upload({tokens}, positions), model.rope_theta, {});
    mask_.emplace(LocalMask{.ranges = device_.allocate({tokens, 4}, DType::int32, Purpose::staging),
                            .schedule = {layout, mask, 0}});
    device_.upload(mask_->ranges, mask.data(), {});
  }

  void forward_backward() const {
    const LayerKept kept(device_, model, input_.rows(), dtype_, rule_);
    device_.copy(kept.input, input_, {});
    LayerWork work;
    layer_.forward(output_, kept, work, weights_, batch_, *mask_, {});
    device_.copy(gradient_, output_gradient_, {});
    layer_.backward(gradient_, kept, work, weights_, gradients_, batch_, *mask_, {});
  }

  [[nodiscard]] double flops() const {
    const auto tokens = static_cast<double>(input_.rows()), pairs = tokens * (tokens + 1) / 2;
    const auto width = static_cast<double>(model.heads * model.head_dim);
    return 6 * static_cast<double>(unit_.elements()) * tokens + 3 * 4 * width * pairs;
  }

 private:
  Device& device_;
  DType dtype_;
  MemoryRule rule_;
  RingAttention attention_;
  DecoderLayer layer_;
  ParameterUnit unit_;
  LayerParameters weights_, gradients_;
  View input_, output_, output_gradient_, gradient_;
  MicroBatch batch_;
  std::optional<LocalMask> mask_;
};

int run(int argc, char** argv) {
  DeviceWords words{.tokens = {4096, 32768}, .products = {2048, 4096}};
  CLI::App app("Measures a decoder layer, forward and backward, against the matrix products of its device.");
  words.add_to(app);
  CLI11_PARSE(app, argc, argv);

  run_as_threads(1, [&](Transport& transport) {
    const std::unique_ptr<Device> device = words.device();
    fmt::print("{}\n\n", device->description());
    Table table(*device, {.seconds = words.seconds});
    for (const std::string& dtype_name : words.dtypes) {
      const DType dtype = dtype_named(dtype_name);
      add_products(table, dtype, words.products);
      table.add("layer forward and backward", Work::flops, dtype, words.tokens,
                [&, dtype](Workbench& bench, int64_t size) {
                  const auto layer = std::make_shared<const Layer>(bench, transport, dtype, size);
                  return Operation{layer->flops(), [layer] { layer->forward_backward(); }};
                });
    }
    table.measure();
    table.print();
  });
  return 0;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  return annulus::run_benchmark("layer_benchmark", argc, argv, annulus::run);
}
