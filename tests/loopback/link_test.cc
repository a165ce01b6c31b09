// Linking, from the program to the driver and back: whose memory is whose, and how much of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "host-daemon/dispatch/link_table.h"
#include "tests/loopback/host.h"

namespace smolvm::loopback {
namespace {

class Linking : public Loopback {
 protected:
  void SetUp() override {
    Loopback::SetUp();
    host.driver.cuLinkCreate_v2 = [&](unsigned count, CUjit_option* keys, void** values,
                                      CUlinkState* state) {
      keys_.assign(keys, keys + count);
      values_ = values;
      *state = Fake<CUlinkState>(++states_);
      return CUDA_SUCCESS;
    };
    host.driver.cuLinkDestroy = [&](CUlinkState) { return CUDA_SUCCESS; };
    host.driver.cuLinkAddData_v2 = [&](CUlinkState state, CUjitInputType type, void* data,
                                       size_t size, const char* name, unsigned, CUjit_option*,
                                       void**) {
      state_ = state;
      type_ = type;
      input_.assign(static_cast<char*>(data), size);
      has_nul_ = static_cast<char*>(data)[size] == '\0';
      name_ = name ? name : "(null)";
      return add_result_;
    };
    host.driver.cuLinkComplete = [&](CUlinkState, void** image, size_t* size) {
      *image = image_.data();
      *size = image_.size();
      return CUDA_SUCCESS;
    };
  }
  CUlinkState Begin() {
    CUlinkState state = nullptr;
    EXPECT_EQ(cuLinkCreate_v2(0, nullptr, nullptr, &state), CUDA_SUCCESS);
    return state;
  }
  static CUresult Add(CUlinkState state, std::string text, CUjitInputType type = CU_JIT_INPUT_PTX) {
    return cuLinkAddData_v2(state, type, text.data(), text.size(), "a name", 0, nullptr, nullptr);
  }
  // What the driver has been told to be option `key`'s value; it may replace it.
  void*& Value(CUjit_option key) {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == key) return values_[i];
    }
    ADD_FAILURE() << "the driver was not given option " << key;
    return values_[0];
  }

  int states_ = 100;
  std::vector<CUjit_option> keys_;
  void** values_ = nullptr;
  CUlinkState state_ = nullptr;
  CUjitInputType type_{};
  std::string input_, name_;
  bool has_nul_ = false;
  CUresult add_result_ = CUDA_SUCCESS;
  std::string image_ = std::string(3'000'000, 'i') + "end";
};

TEST_F(Linking, InputsArriveWhole) {
  const CUlinkState state = Begin();
  std::string text(2'500'001, 'x');
  text.back() = 'y';
  ASSERT_EQ(Add(state, text), CUDA_SUCCESS);
  EXPECT_EQ(state_, Fake<CUlinkState>(states_));
  EXPECT_EQ(type_, CU_JIT_INPUT_PTX);
  EXPECT_TRUE(input_ == text);
  EXPECT_TRUE(has_nul_);  // of text, behind it
  EXPECT_EQ(name_, "a name");
  ASSERT_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, text.data(), 1, nullptr, 0, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(name_, "(null)");
  EXPECT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
}

TEST_F(Linking, TheImageIsTheStatesUntilItsEnd) {
  const CUlinkState state = Begin();
  void *image = nullptr, *again = nullptr;
  size_t size = 0;
  ASSERT_EQ(cuLinkComplete(state, &image, &size), CUDA_SUCCESS);
  ASSERT_EQ(size, image_.size());
  EXPECT_EQ(memcmp(image, image_.data(), size), 0);
  // The driver's may go elsewhere; the program's stays.
  ASSERT_EQ(cuLinkComplete(state, &again, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(again, image);
  EXPECT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
  EXPECT_EQ(cuLinkDestroy(state), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLinkComplete(state, &image, &size), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Add(state, "x"), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Linking, LogsAccumulateInTheProgramsBuffers) {
  char info[16] = "", error[64] = "";
  CUjit_option keys[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                         CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                         CU_JIT_WALL_TIME};
  void* values[] = {info, reinterpret_cast<void*>(sizeof info), error,
                    reinterpret_cast<void*>(sizeof error), nullptr};
  CUlinkState state = nullptr;
  ASSERT_EQ(cuLinkCreate_v2(5, keys, values, &state), CUDA_SUCCESS);
  const auto log = [&](CUjit_option buffer, CUjit_option size, const char* text) {
    strcpy(static_cast<char*>(Value(buffer)), text);
    Value(size) = reinterpret_cast<void*>(strlen(text));
  };
  log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "first");
  add_result_ = CUDA_ERROR_INVALID_PTX;
  EXPECT_EQ(Add(state, "bad"), CUDA_ERROR_INVALID_PTX);
  EXPECT_STREQ(error, "first");
  add_result_ = CUDA_SUCCESS;
  log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "first, second");
  log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "as long as fits");
  EXPECT_EQ(Add(state, "good"), CUDA_SUCCESS);
  EXPECT_STREQ(error, "first, second");
  EXPECT_EQ(reinterpret_cast<size_t>(values[3]), strlen(error));
  EXPECT_STREQ(info, "as long as fits");
  const float milliseconds = 1.5;
  memcpy(&Value(CU_JIT_WALL_TIME), &milliseconds, sizeof milliseconds);
  void* image = nullptr;
  ASSERT_EQ(cuLinkComplete(state, &image, nullptr), CUDA_SUCCESS);
  float got = 0;
  memcpy(&got, &values[4], sizeof got);
  EXPECT_EQ(got, milliseconds);
  EXPECT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
}

TEST_F(Linking, FilesAreReadInTheGuest) {
  const CUlinkState state = Begin();
  std::string path = testing::TempDir() + "smolvm-link-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  std::ofstream(path) << "text";
  const auto add = [&](CUjitInputType type) {
    return cuLinkAddFile_v2(state, type, path.c_str(), 0, nullptr, nullptr);
  };
  EXPECT_EQ(add(CU_JIT_INPUT_PTX), CUDA_SUCCESS);
  EXPECT_EQ(input_, std::string("text", 5));  // with the NUL that text ends with
  EXPECT_EQ(name_, path);
  EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY), CUDA_SUCCESS);
  EXPECT_EQ(input_, "text");
  std::remove(path.c_str());
  EXPECT_EQ(add(CU_JIT_INPUT_PTX), CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
}

// What says by itself how long it is must end where the input ends; a wrapper has addresses.
TEST_F(Linking, DamagedInputsDoNotReachTheDriver) {
  const CUlinkState state = Begin();
  const uint32_t wrapper[] = {0x466243B1, 1, 0x1000, 0, 0, 0};
  const std::string kInputs[] = {
      std::string(reinterpret_cast<const char*>(wrapper), 24),
      std::string("\x50\xed\x55\xba\x01\x00\x10\x00\xff\xff", 10) + std::string(6, '\0'),
      "\x7f"
      "ELF, but short"};
  for (const std::string& input : kInputs) {
    EXPECT_EQ(Add(state, input, CU_JIT_INPUT_FATBINARY), CUDA_ERROR_INVALID_IMAGE);
    EXPECT_EQ(Add(state, input, CU_JIT_INPUT_CUBIN), CUDA_ERROR_INVALID_IMAGE);
  }
  EXPECT_EQ(input_, "");
  EXPECT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
}

TEST_F(Linking, BadArgumentsAreRefusedHere) {
  CUlinkState state = Begin();
  EXPECT_EQ(cuLinkCreate_v2(0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLinkCreate_v2(2, nullptr, nullptr, &state), CUDA_ERROR_INVALID_VALUE);
  CUjit_option key = CU_JIT_GLOBAL_SYMBOL_NAMES;
  char text[] = "x";
  void* value = text;  // an address; NULL is an empty list
  EXPECT_EQ(cuLinkCreate_v2(1, &key, &value, &state), CUDA_ERROR_NOT_SUPPORTED);
  value = nullptr;
  for (const CUjit_option output : {CU_JIT_WALL_TIME, CU_JIT_TARGET, CU_JIT_INFO_LOG_BUFFER}) {
    key = output;
    EXPECT_EQ(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text, 1, nullptr, 1, &key, &value),
              CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text, 0, nullptr, 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLinkComplete(state, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLinkDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
  // A handle of another kind.
  EXPECT_EQ(cuLinkDestroy(reinterpret_cast<CUlinkState>(host.Handle<CUmodule>(9))),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
}

TEST_F(Linking, InputsAndStatesAreCounted) {
  const CUlinkState state = Begin();
  for (size_t i = 0; i < dispatch::LinkTable::kMaxInputs; ++i)
    ASSERT_EQ(Add(state, "x"), CUDA_SUCCESS) << i;
  EXPECT_EQ(Add(state, "x"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
  std::vector<CUlinkState> states;
  for (size_t i = 0; i < dispatch::LinkTable::kMaxLinks; ++i) states.push_back(Begin());
  CUlinkState more = nullptr;
  EXPECT_EQ(cuLinkCreate_v2(0, nullptr, nullptr, &more), CUDA_ERROR_OUT_OF_MEMORY);
  for (const CUlinkState one : states) EXPECT_EQ(cuLinkDestroy(one), CUDA_SUCCESS);
  more = Begin();
  EXPECT_EQ(cuLinkDestroy(more), CUDA_SUCCESS);
}

TEST(LinkTable, CountsBytesOfAllLinksTogether) {
  dispatch::LinkTable table;
  const auto make = [&](uint64_t id) {
    auto link = std::make_shared<dispatch::LinkInProgress>(
        nullptr, std::make_unique<dispatch::JitOptions>());
    table.Add(id, link);
    return link;
  };
  const auto one = make(1), two = make(2);
  constexpr uint64_t kMost = dispatch::LinkTable::kMaxInputBytes;
  EXPECT_TRUE(table.Count(*one, kMost - 1));
  EXPECT_FALSE(table.Count(*two, 2));
  EXPECT_FALSE(table.Count(*two, UINT64_MAX));
  EXPECT_TRUE(table.Count(*two, 1));
  table.Remove(1);
  EXPECT_TRUE(table.Count(*two, kMost - 1));
}

}  // namespace
}  // namespace smolvm::loopback
