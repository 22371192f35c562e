// How long OpenMP's threads spin before they sleep. By default they spin for milliseconds, which on cores that others
// use too makes a step several times slower; a fraction of a millisecond costs nothing measurable on cores of one's
// own. GCC's OpenMP reads its environment when it is loaded, before main and before any constructor of this program;
// only what the dynamic linker runs first (.preinit_array) comes early enough. Whoever has set the policy keeps it.
#include <cstdlib>

namespace {

void spin_briefly(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "5000", 0);
}

__attribute__((section(".preinit_array"), used)) void (*const first)(int, char**, char**) = spin_briefly;

}  // namespace
