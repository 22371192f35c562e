#include "launcher/progress.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <cstdio>

namespace annulus {
namespace {

class LogListener : public Listener {
 public:
  void entered(Phase phase, int64_t /*step*/) override {
    const bool takes_a_while = phase == Phase::load || phase == Phase::save;
    if (takes_a_while) spdlog::info(name_of(phase));
  }

  void finished(const StepReport& report) override {
    spdlog::info("{}  grad norm {:.4g}  learning rate {:.3g}  {:.2f} s", step_text(report), report.grad_norm,
                 report.learning_rate, report.seconds);
  }
};

// Stays below 80 columns. The line is finished when the run is, whatever ends it, so that what follows starts on its
// own.
class TerminalListener : public Listener {
 public:
  TerminalListener() = default;
  TerminalListener(const TerminalListener&) = delete;
  TerminalListener& operator=(const TerminalListener&) = delete;
  ~TerminalListener() override {
    if (shown_) std::fputs("\n", stderr);
  }

  void entered(Phase phase, int64_t /*step*/) override {
    phase_ = name_of(phase);
    show();
  }

  void finished(const StepReport& report) override {
    ++done_;
    elapsed_ += report.seconds;
    progress_ =
        fmt::format("{}  {} left", step_text(report), duration_text(seconds_left(elapsed_, done_, report.steps)));
    show();
  }

 private:
  void show() {
    shown_ = true;
    const std::string line = fmt::format("{}  {}", progress_, phase_).substr(0, 79);
    std::fputs(("\r" + line + "\x1b[K").c_str(), stderr);  // ESC [ K: erase what is left of a longer line
  }

  std::string progress_ = "starting", phase_;
  double elapsed_ = 0;
  int64_t done_ = 0;
  bool shown_ = false;
};

}  // namespace

void start_log(int rank) {
  const auto log = spdlog::stderr_logger_st("annulus");
  log->set_pattern("%H:%M:%S %v");
  log->set_level(rank == 0 ? spdlog::level::info : spdlog::level::off);
  spdlog::set_default_logger(log);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string step_text(const StepReport& report) {
  const double rate = report.seconds > 0 ? static_cast<double>(report.tokens) / report.seconds : 0;
  return fmt::format("step {}/{}  loss {:.4f}  {} tokens/s", report.step, report.steps, report.loss,
                     fmt::group_digits(std::llround(rate)));
}

double seconds_left(double elapsed, int64_t done, int64_t steps) {
  return elapsed / static_cast<double>(done) * static_cast<double>(steps - done);
}

std::unique_ptr<Listener> make_listener(int rank, bool on_terminal) {
  if (rank != 0) return std::make_unique<Listener>();
  if (on_terminal) return std::make_unique<TerminalListener>();
  return std::make_unique<LogListener>();
}

}  // namespace annulus
