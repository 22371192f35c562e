#include "kernels/memory.h"

#include "kernels/error.h"

namespace annulus {

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::parameters:
      return "parameters";
    case Purpose::gradients:
      return "gradients";
    case Purpose::optimizer:
      return "optimizer";
    case Purpose::checkpoints:
      return "checkpoints";
    case Purpose::attention:
      return "attention";
    case Purpose::mlp:
      return "mlp";
    case Purpose::logits:
      return "logits";
    case Purpose::communication:
      return "communication";
    case Purpose::staging:
      return "staging";
    case Purpose::workspace:
      return "workspace";
  }
  throw InternalError("a purpose that does not exist");
}

}  // namespace annulus
