#include "container/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include "container/cuda_devices.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

GpuSelector Parse(std::string_view text) { return normalize_gpus(text); }

std::string Rejection(std::string_view text) {
  try {
    return "accepted as " + Parse(text).ToString();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Selector, NothingIsOff) {
  EXPECT_TRUE(normalize_gpus(std::nullopt).off());
  EXPECT_TRUE(normalize_gpus(false).off());
  for (const char* text : {"", " ", ",", " , ,\t", "\n"}) EXPECT_TRUE(Parse(text).off()) << text;
  EXPECT_TRUE(normalize_gpus(std::span<const std::string>()).off());
  const std::vector<std::string> empties = {"", " , "};
  EXPECT_TRUE(normalize_gpus(std::span(empties)).off());
}

TEST(Selector, TrueAndAllAreAll) {
  EXPECT_TRUE(normalize_gpus(true).all());
  for (const char* text : {"all", " ALL ", "nvidia:3,all", "all,amd", "all,all"}) {
    EXPECT_TRUE(Parse(text).all()) << text;
    EXPECT_TRUE(Parse(text).grants().empty()) << text;
  }
}

TEST(Selector, AStringLiteralIsNoBoolean) {
  EXPECT_EQ(normalize_gpus("amd"), GpuSelector::Of({{GpuVendor::kAmd, std::nullopt}}));
}

TEST(Selector, OrdersByVendorThenIndexAndFoldsDuplicates) {
  EXPECT_EQ(Parse("intel,amd:10,nvidia:1,amd:2,nvidia:0,amd:2").ToString(),
            "nvidia:0,nvidia:1,amd:2,amd:10,intel");
}

TEST(Selector, AWholeVendorAbsorbsItsDevices) {
  EXPECT_EQ(Parse("nvidia:0,nvidia,nvidia:7,intel:0").ToString(), "nvidia,intel:0");
}

TEST(Selector, TrimsAndLowersTokens) {
  EXPECT_EQ(Parse(" NVidia:0 ,\tAMD\n").ToString(), "nvidia:0,amd");
}

TEST(Selector, AListsItemsMayBeCommaLists) {
  const std::vector<std::string> list = {"amd", "nvidia:1, nvidia:0", ""};
  EXPECT_EQ(normalize_gpus(std::span(list)).ToString(), "nvidia:0,nvidia:1,amd");
}

TEST(Selector, ChoiceForTellsOffWholeAndSingleDevices) {
  const GpuSelector selector = Parse("nvidia:2,nvidia:0,amd");
  EXPECT_EQ(selector.ChoiceFor(GpuVendor::kNvidia).value(),
            DeviceChoice(std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(selector.ChoiceFor(GpuVendor::kAmd).value(), DeviceChoice());
  EXPECT_FALSE(selector.ChoiceFor(GpuVendor::kIntel).has_value());
  EXPECT_FALSE(GpuSelector::All().ChoiceFor(GpuVendor::kAmd).has_value());
}

TEST(Selector, RejectionsNameTheTokenAndWhatIsAccepted) {
  for (const char* token : {"matrox",
                            "nvidia:",
                            "nvidia:x",
                            "nvidia:-1",
                            "nvidia:+1",
                            "nvidia: 1",
                            "nvidia:1:2",
                            "nvidia:0x1",
                            "nvidia:1.5",
                            "all:0",
                            "all:",
                            ":0",
                            "nvidia=0",
                            "true",
                            "0",
                            "nvidia :0",
                            "nvidia;amd",
                            "nvidia amd",
                            "nvidia:4294967296",
                            "nvidia:99999999999999999999"}) {
    EXPECT_THAT(Rejection(token), AllOf(HasSubstr(std::string("'") + token + "'"),
                                        HasSubstr("accepted are 'all'"), HasSubstr("'nvidia:0'")))
        << token;
  }
}

TEST(Selector, AMalformedTokenBesideAllIsStillAnError) {
  EXPECT_THAT(Rejection("all,matrox"), HasSubstr("'matrox'"));
  EXPECT_THAT(Rejection("nvidia:x,all"), HasSubstr("'nvidia:x'"));
  EXPECT_THAT(Rejection("all,all:0"), HasSubstr("'all:0'"));
}

TEST(Selector, RejectionsStayOnOneShortLine) {
  EXPECT_THAT(Rejection("a\x1b[31m\nb'\xff"), AllOf(HasSubstr(R"('a\x1b[31m\x0ab\x27\xff')"),
                                                    Not(HasSubstr("\n")), Not(HasSubstr("\x1b"))));
  EXPECT_LT(Rejection(std::string(100000, 'x')).size(), 400u);
}

TEST(Selector, TheLargestIndexFits) {
  EXPECT_EQ(Parse("amd:4294967295").grants().front().index, 4294967295u);
  EXPECT_EQ(Parse("amd:007").ToString(), "amd:7");
}

// A second statement of the contract, made differently: sets instead of sorting.
struct Model {
  bool all = false;
  std::map<int, std::set<long>> devices;  // -1 stands for the whole vendor

  void Add(const std::string& vendor, long index) {
    devices[vendor == "nvidia" ? 0 : vendor == "amd" ? 1 : 2].insert(index);
  }
  std::string Spell() const {
    if (all) return "all";
    std::string text;
    for (const auto& [vendor, indices] : devices) {
      const std::string name = vendor == 0 ? "nvidia" : vendor == 1 ? "amd" : "intel";
      for (long index : indices) {
        if (!text.empty()) text += ',';
        text += name;
        if (index == -1) break;
        text += ':';
        text += std::to_string(index);
      }
    }
    return text.empty() ? "off" : text;
  }
};

std::string Decorate(std::string token, std::mt19937& random) {
  for (char& c : token) {
    if (random() % 3 == 0) c = static_cast<char>(std::toupper(c));
  }
  const char* const spaces[] = {"", " ", "\t", "  "};
  return spaces[random() % 4] + token + spaces[random() % 4];
}

class SelectorProperty : public ::testing::TestWithParam<unsigned> {};

TEST_P(SelectorProperty, AgreesWithTheModelAndIsAFixedPoint) {
  std::mt19937 random(GetParam());
  for (int round = 0; round < 500; ++round) {
    Model model;
    std::vector<std::string> list(1);
    for (unsigned tokens = random() % 9; tokens > 0; --tokens) {
      std::string token;
      if (random() % 12 == 0) {
        token = "all";
        model.all = true;
      } else if (random() % 8 != 0) {
        token = std::string(VendorName(GPU_VENDORS[random() % 3]));
        const long index = random() % 4 == 0 ? -1 : static_cast<long>(random() % 6);
        model.Add(token, index);
        if (index >= 0) token += ":" + std::to_string(index);
      }  // else an empty token
      if (random() % 3 == 0) list.emplace_back();
      list.back() += (list.back().empty() ? "" : ",") + Decorate(token, random);
    }
    const GpuSelector selector = normalize_gpus(std::span(list));
    ASSERT_EQ(selector.ToString(), model.Spell()) << Join(list, " | ");
    if (!selector.off()) {
      ASSERT_EQ(Parse(selector.ToString()), selector);
    }
    // One comma list says the same as a list of words, in any order.
    std::shuffle(list.begin(), list.end(), random);
    ASSERT_EQ(Parse(Join(list, ",")), selector) << Join(list, ",");
  }
}

// A character changed in a good selector gives another good one or a clear rejection, never a
// crash.
TEST_P(SelectorProperty, MutationsAreParsedOrRejectedByName) {
  std::mt19937 random(GetParam());
  for (int round = 0; round < 2000; ++round) {
    std::string text = "nvidia:0,amd:12, intel ,all";
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
    }
    try {
      const GpuSelector selector = Parse(text);
      ASSERT_EQ(Parse(selector.off() ? "" : selector.ToString()), selector);
    } catch (const std::invalid_argument& error) {
      ASSERT_THAT(error.what(), HasSubstr("accepted are"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SelectorProperty, ::testing::Range(1u, 9u));

TEST(CudaDevices, TakesBareIndicesAndTheSelectorGrammar) {
  using List = std::vector<std::uint32_t>;
  EXPECT_EQ(ParseCudaDevices("2, 0,2"), CudaDevices(List{0, 2}));
  EXPECT_EQ(ParseCudaDevices("nvidia:1,0"), CudaDevices(List{0, 1}));
  EXPECT_EQ(ParseCudaDevices("nvidia:1,nvidia"), CudaDevices());
  EXPECT_EQ(ParseCudaDevices("all"), CudaDevices());
  EXPECT_EQ(ParseCudaDevices(""), CudaDevices(List{}));
}

TEST(CudaDevices, RejectsOtherVendorsAndMalformedTokens) {
  EXPECT_THROW(ParseCudaDevices("amd"), std::invalid_argument);
  EXPECT_THROW(ParseCudaDevices("0,intel:1"), std::invalid_argument);
  EXPECT_THROW(ParseCudaDevices("-1"), std::invalid_argument);
  EXPECT_THROW(ParseCudaDevices("0 1"), std::invalid_argument);
  EXPECT_THROW(ParseCudaDevices("99999999999"), std::invalid_argument);
}

}  // namespace
}  // namespace smolvm::gpu
