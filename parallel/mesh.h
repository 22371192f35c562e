// Which rank does what. Ranks form a grid of named axes: rank = data · context_size + context.
#pragma once

namespace annulus {

struct Mesh {
  int data_size = 1;     // D, groups that work on different sequences
  int context_size = 1;  // C, ranks along one sequence
  int rank = 0;

  [[nodiscard]] int size() const { return data_size * context_size; }
  [[nodiscard]] int data() const { return rank / context_size; }
  [[nodiscard]] int context() const { return rank % context_size; }
  [[nodiscard]] int context_peer(int context) const { return data() * context_size + context; }  // its rank
};

}  // namespace annulus
