// From the arguments of attention to those of its kernels.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "kernels/cuda/attention_block.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/dispatch.h"
#include "kernels/narrow.h"
#include "kernels/shapes.h"

namespace annulus::cuda {

template <class T>
Slices<T> slices_of(std::span<const KeySlice> keys) {
  Slices<T> slices{};
  slices.count = narrow<int>(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    slices.slice[i] = {keys[i].key.as<T>(), keys[i].value.as<T>(), keys[i].first, narrow<int>(keys[i].key.rows())};
  }
  return slices;
}

inline int64_t kv_heads_of(const View& query, std::span<const KeySlice> keys) {
  return keys.empty() ? query.dim(1) : keys.front().key.dim(1);
}

// Of AttentionForward or AttentionBackward.
template <class T, class Args>
Operands<T> operands_of(const Args& args) {
  return {.query = args.query.template as<T>(),
          .ranges = reinterpret_cast<const KeyRanges*>(args.ranges.template as<int32_t>()),
          .slices = slices_of<T>(args.keys),
          .scale = args.scale,
          .rows = narrow<int>(args.query.rows()),
          .heads = narrow<int>(args.query.dim(1)),
          .kv_heads = narrow<int>(kv_heads_of(args.query, args.keys)),
          .head_dim = narrow<int>(args.query.dim(2))};
}

template <class Args>
void require_supported(const Args& args) {
  require_shapes(args);
  require(args.query.dim(2) % 8 == 0 && args.query.dim(2) <= 256,
          "attention has a head_dim of a multiple of 8 up to 256");
  require(args.scale > 0, "attention has a positive scale");
}

// body.operator()<T, dims>() with the smallest number of dimensions kernels are made for that holds the head_dim.
template <class Body>
void with_kernel_type(const View& query, const Body& body) {
  with_float_type(query.dtype(), [&]<class T>() {
    const int64_t head_dim = query.dim(2);
    if (head_dim <= 32) return body.template operator()<T, 32>();
    if (head_dim <= 64) return body.template operator()<T, 64>();
    if (head_dim <= 128) return body.template operator()<T, 128>();
    body.template operator()<T, 256>();
  });
}

// Launches blocks that pass over `items` items (for_each_item), whose number is the kernel's last argument. With
// `multiprocessors` there are no more blocks than so many hold at once, and the other multiprocessors stay free;
// without it every item has a block, and the GPU starts them as others end.
template <class... Parameters, class... Arguments>
void launch_over_items(void (*kernel)(Parameters...), int64_t items, std::optional<int> multiprocessors, int threads,
                       int64_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  const int64_t blocks =
      multiprocessors ? std::min(items, *multiprocessors * resident_blocks(kernel, threads, shared_bytes)) : items;
  launch(kernel, blocks, threads, shared_bytes, stream, std::forward<Arguments>(arguments)..., narrow<uint32_t>(items));
}

// How many of `count` slices each of several launches gets; one launch where there is none.
template <class Launch>
void for_each_launch(size_t count, const Launch& launch_part) {
  const size_t launches =
      std::max<size_t>(1, static_cast<size_t>(ceil_divide(static_cast<int64_t>(count), most_slices)));
  for (size_t i = 0; i < launches; ++i) {
    const size_t begin = i * most_slices;
    launch_part(begin, std::min<size_t>(most_slices, count - begin), i == 0, i + 1 == launches);
  }
}

}  // namespace annulus::cuda
