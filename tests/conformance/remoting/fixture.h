// One daemon for all tests of a suite.
#pragma once

#include <gtest/gtest.h>

#include "tests/conformance/remoting/process.h"

namespace smolvm::remoting {

class Remoting : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = new Daemon; }
  static void TearDownTestSuite() {
    delete daemon_;
    daemon_ = nullptr;
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << "daemon's log:\n" << daemon_->log();
  }

  static Daemon& daemon() { return *daemon_; }
  static std::unique_ptr<Process> Guest(const std::vector<std::string>& command,
                                        std::vector<std::string> environment = {}) {
    return StartGuest(daemon_->socket(), command, std::move(environment));
  }
  // Runs a command to its end, which must be a good one; its output.
  static std::string Run(const std::vector<std::string>& command,
                         std::vector<std::string> environment = {}) {
    const auto guest = Guest(command, std::move(environment));
    const int status = guest->Wait();
    EXPECT_EQ(status, 0) << command[0] << " printed:\n" << guest->output();
    return guest->output();
  }

 private:
  static inline Daemon* daemon_ = nullptr;
};

// Preloaded, the emulation library's functions come before the guest library's.
inline const std::vector<std::string> kNatively = {"LD_PRELOAD=" SMOLVM_EMULATION_LIBRARY,
                                                   "SMOLVM_CUDA_ENDPOINT=unix:/nonexistent"};

inline constexpr bool kSanitized = sizeof(SMOLVM_SANITIZE) > 1;

}  // namespace smolvm::remoting
