// Every described call with every enumerator, flag, missing pointer and wrong handle, remoted and
// natively: the same results, and the same left behind pointers. The calls and their parameters are
// those of protocol/api, the enumerators those of cuda.h, so a new call is in it by itself
// (guest/probe.h).
#include <gmock/gmock.h>

#include <map>
#include <regex>
#include <sstream>

#include "tests/conformance/remoting/fixture.h"

namespace smolvm::remoting {
namespace {

// "cuMemHostAlloc Flags=4" → "CUDA_SUCCESS pp=set".
std::map<std::string, std::string> ByCase(const std::string& output) {
  std::map<std::string, std::string> cases;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("cu") && colon != std::string::npos)
      cases[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return cases;
}

// Where both differ for a reason.
bool MayDiffer(const std::string& name) {
  static const std::regex kReasons(
      // What needs memory that both sides map reads 0 in a guest (dispatch/snapshot.cc).
      "cuDeviceGetAttribute attrib=CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY"
      // Numbers of the process.
      "|cuPointerGetAttribute attribute=CU_POINTER_ATTRIBUTE_(BUFFER_ID|MEMORY_BLOCK_ID)");
  return std::regex_match(name, kReasons);
}

class EveryValue : public Remoting {};

TEST_F(EveryValue, HasOneAnswerRemotedAndNatively) {
  const auto native = ByCase(Run({"every_value"}, kNatively));
  const auto remoted = ByCase(Run({"every_value"}));
  EXPECT_GT(native.size(), 3000u);
  int differ = 0;
  for (const auto& [name, answer] : native) {
    const auto found = remoted.find(name);
    const std::string other = found == remoted.end() ? "nothing" : found->second;
    if (other == answer || MayDiffer(name)) continue;
    if (++differ <= 100)
      ADD_FAILURE() << name << "\n  natively " << answer << "\n  remoted  " << other;
  }
  EXPECT_EQ(native.size(), remoted.size());
  EXPECT_EQ(differ, 0);
}

}  // namespace
}  // namespace smolvm::remoting
