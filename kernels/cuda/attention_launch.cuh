// From the arguments of attention to those of its kernels.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/cuda/attention_tile.cuh"
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
    slices.slice[i] = {keys[i].key.as<T>(), keys[i].value.as<T>(), keys[i].first, keys[i].key.rows()};
  }
  return slices;
}

inline int64_t kv_heads_of(const View& query, std::span<const KeySlice> keys) {
  return keys.empty() ? query.dim(1) : keys.front().key.dim(1);
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
