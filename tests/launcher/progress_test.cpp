#include "launcher/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

namespace annulus {
namespace {

TEST(DurationText, UsesTwoUnitsAtMost) {
  EXPECT_EQ(duration_text(0.4), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(185), "3m05s");
  EXPECT_EQ(duration_text(3720), "1h02m");
  EXPECT_EQ(duration_text(360000), "100h00m");
}

TEST(StepText, SaysWhereTheRunIs) {
  const StepReport report = {.step = 3, .steps = 100, .loss = 5.12344, .tokens = 2469, .seconds = 0.5};
  EXPECT_EQ(step_text(report), "step 3/100  loss 5.1234  4,938 tokens/s");
}

TEST(SecondsLeft, FollowThePaceSoFar) {
  EXPECT_DOUBLE_EQ(seconds_left(10, 4, 12), 20);
  EXPECT_DOUBLE_EQ(seconds_left(10, 12, 12), 0);
}

TEST(Listeners, SpeakOnlyOnRankZero) {
  ::testing::internal::CaptureStderr();
  make_listener(1, true)->finished({.step = 1, .steps = 2, .seconds = 1});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Listeners, RewriteOneLineOnATerminalAndEndIt) {
  ::testing::internal::CaptureStderr();
  {
    const std::unique_ptr<Listener> listener = make_listener(0, true);
    listener->entered(Phase::forward, 1);
    listener->finished({.step = 1, .steps = 2, .loss = 1.5, .tokens = 8, .seconds = 1});
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("\rstep 1/2  loss 1.5000  8 tokens/s  1s left"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace annulus
