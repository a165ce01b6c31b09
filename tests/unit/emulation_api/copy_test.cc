#include <algorithm>
#include <numeric>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

class CopyTest : public EmulationTest {
 protected:
  std::vector<uint8_t> Pattern(size_t bytes) {
    std::vector<uint8_t> pattern(bytes);
    std::iota(pattern.begin(), pattern.end(), 1);
    return pattern;
  }
  std::vector<uint8_t> Bytes(CUdeviceptr address, size_t bytes) {
    std::vector<uint8_t> content(bytes);
    EXPECT_CUDA(cuMemcpyDtoH(content.data(), address, bytes));
    return content;
  }
};

TEST_F(CopyTest, ThereAndBack) {
  for (const size_t bytes : {size_t{1}, size_t{65536}, size_t{5} << 20}) {
    const auto pattern = Pattern(bytes);
    const CUdeviceptr first = Alloc(bytes), second = Alloc(bytes);
    EXPECT_CUDA(cuMemcpyHtoD(first, pattern.data(), bytes));
    EXPECT_CUDA(cuMemcpyDtoD(second, first, bytes));
    EXPECT_EQ(Bytes(second, bytes), pattern);
    EXPECT_CUDA(cuMemsetD8(first, 0, bytes));
    EXPECT_CUDA(cuMemcpy(first, reinterpret_cast<CUdeviceptr>(pattern.data()), bytes));
    EXPECT_EQ(Bytes(first, bytes), pattern);
    EXPECT_CUDA(cuMemcpyPeer(second, context_, first, context_, bytes));
    EXPECT_EQ(cuMemcpyPeer(second, Garbage<CUcontext>(), first, context_, bytes),
              CUDA_ERROR_INVALID_CONTEXT);
  }
}

TEST_F(CopyTest, ChecksItsArguments) {
  const CUdeviceptr address = Alloc(4096);
  char byte = 0;
  EXPECT_EQ(cuMemcpyHtoD(address, nullptr, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemcpyHtoD(address, nullptr, 0));
  EXPECT_EQ(cuMemcpyHtoD(address + 1, &byte, 4096), CUDA_ERROR_INVALID_VALUE);  // runs past its end
  EXPECT_EQ(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(&byte), &byte, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(&byte, 0x5500'0000'0000 + (size_t{1} << 29), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(&byte, address, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoDAsync(address, &byte, 1, Garbage<CUstream>()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemsetD32(address + 1, 0, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32(address, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(address, 0, 4097), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemsetD8(address, 0, 0));
}

TEST_F(CopyTest, Fills) {
  const CUdeviceptr address = Alloc(4096);
  EXPECT_CUDA(cuMemsetD8(address, 0xab, 4096));
  EXPECT_CUDA(cuMemsetD16(address + 2, 0x1234, 3));
  EXPECT_CUDA(cuMemsetD32Async(address + 12, 0xdeadbeef, 2, nullptr));
  const std::vector<uint8_t> expected = {0xab, 0xab, 0x34, 0x12, 0x34, 0x12, 0x34,
                                         0x12, 0xab, 0xab, 0xab, 0xab, 0xef, 0xbe,
                                         0xad, 0xde, 0xef, 0xbe, 0xad, 0xde, 0xab};
  EXPECT_EQ(Bytes(address, expected.size()), expected);
  EXPECT_CUDA(cuMemsetD8(address, 0, 4096));
  EXPECT_CUDA(cuMemsetD2D16(address, 8, 0x0101, 2, 3));
  const std::vector<uint8_t> rows = {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0,
                                     0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0};
  EXPECT_EQ(Bytes(address, rows.size()), rows);
  EXPECT_EQ(cuMemsetD2D8(address, 4, 0, 5, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD2D32(address, 8, 0, 2, 1024), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyTest, TwoDimensions) {
  const auto source = Pattern(8 * 10);
  const CUdeviceptr device = Alloc(16 * 10);
  CUDA_MEMCPY2D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = source.data();
  in.srcPitch = 8;
  in.srcXInBytes = 2;
  in.srcY = 1;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  in.dstDevice = device;
  in.dstPitch = 16;
  in.dstXInBytes = 3;
  in.dstY = 2;
  in.WidthInBytes = 4;
  in.Height = 5;
  ASSERT_CUDA(cuMemcpy2D(&in));
  const auto bytes = Bytes(device, 160);
  for (size_t y = 0; y < 10; ++y) {
    for (size_t x = 0; x < 16; ++x) {
      const bool copied = x >= 3 && x < 7 && y >= 2 && y < 7;
      EXPECT_EQ(bytes[y * 16 + x], copied ? source[(y - 1) * 8 + x - 1] : 0) << x << "," << y;
    }
  }
  CUDA_MEMCPY2D out = {};
  std::vector<uint8_t> back(20);
  out.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  out.srcDevice = device;
  out.srcPitch = 16;
  out.srcXInBytes = 3;
  out.srcY = 2;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = back.data();
  out.dstPitch = 4;
  out.WidthInBytes = 4;
  out.Height = 5;
  ASSERT_CUDA(cuMemcpy2DUnaligned(&out));
  for (size_t y = 0; y < 5; ++y)
    for (size_t x = 0; x < 4; ++x) EXPECT_EQ(back[y * 4 + x], source[(y + 1) * 8 + x + 2]);
}

TEST_F(CopyTest, TwoDimensionsAreChecked) {
  const CUdeviceptr device = Alloc(4096);
  std::vector<char> host(4096);
  CUDA_MEMCPY2D good = {};
  good.srcMemoryType = CU_MEMORYTYPE_HOST;
  good.srcHost = host.data();
  good.srcPitch = 64;
  good.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  good.dstDevice = device;
  good.dstPitch = 64;
  good.WidthInBytes = 64;
  good.Height = 64;
  EXPECT_CUDA(cuMemcpy2D(&good));
  const auto refused = [&](auto change) {
    CUDA_MEMCPY2D bad = good;
    change(bad);
    return cuMemcpy2D(&bad);
  };
  EXPECT_EQ(cuMemcpy2D(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& c) { c.Height = 65; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& c) { c.srcPitch = 63; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& c) { c.dstXInBytes = 1; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& c) { c.dstY = SIZE_MAX / 64; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& c) { c.srcHost = nullptr; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& c) { c.srcMemoryType = static_cast<CUmemorytype>(9); }),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& c) { c.srcMemoryType = CU_MEMORYTYPE_ARRAY; }),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_CUDA(refused([](auto& c) { c.Height = 0; }));
}

TEST_F(CopyTest, ThreeDimensions) {
  const size_t width = 5, height = 4, depth = 3;
  const auto source = Pattern(width * height * depth);
  const CUdeviceptr device = Alloc(8 * 6 * 5);
  CUDA_MEMCPY3D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = source.data();
  in.srcPitch = width;
  in.srcHeight = height;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  in.dstDevice = device;
  in.dstPitch = 8;
  in.dstHeight = 6;
  in.dstXInBytes = 1;
  in.dstY = 2;
  in.dstZ = 1;
  in.WidthInBytes = width;
  in.Height = height;
  in.Depth = depth;
  const CUstream stream = NewStream();
  ASSERT_CUDA(cuMemcpy3DAsync(&in, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  const auto bytes = Bytes(device, 8 * 6 * 5);
  for (size_t z = 0; z < depth; ++z)
    for (size_t y = 0; y < height; ++y)
      for (size_t x = 0; x < width; ++x)
        EXPECT_EQ(bytes[((z + 1) * 6 + y + 2) * 8 + x + 1], source[(z * height + y) * width + x]);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), 240 - 60);
  in.dstZ = 3;
  EXPECT_EQ(cuMemcpy3D(&in), CUDA_ERROR_INVALID_VALUE);
  in.dstZ = 1;
  in.reserved0 = &in;
  EXPECT_EQ(cuMemcpy3D(&in), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyTest, PageableSourceMayChangeOnReturn) {
  const CUstream stream = NewStream();
  const CUdeviceptr address = Alloc(4096);
  uint32_t value = 1;
  Gate gate(stream);
  EXPECT_CUDA(cuMemcpyHtoDAsync(address, &value, 4, stream));
  value = 2;
  gate.Open();
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(Word(address), 1u);
}

TEST_F(CopyTest, PinnedCopiesKeepStreamOrder) {
  const CUstream stream = NewStream();
  const CUdeviceptr address = Alloc(4096);
  void* memory = nullptr;
  ASSERT_CUDA(cuMemAllocHost(&memory, 4096));
  auto* value = static_cast<uint32_t*>(memory);
  value[0] = 1;
  value[1] = 0;
  Gate gate(stream);
  EXPECT_CUDA(cuMemcpyHtoDAsync(address, value, 4, stream));
  EXPECT_CUDA(cuMemcpyDtoHAsync(value + 1, address, 4, stream));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  value[0] = 2;  // pinned: read when the stream gets there
  gate.Open();
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(value[1], 2u);
  EXPECT_CUDA(cuMemFreeHost(memory));
}

}  // namespace
}  // namespace smolvm::emulation
