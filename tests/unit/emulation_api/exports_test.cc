#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "protocol/gen/exports/export_model.h"
#include "protocol/gen/exports/proc_address.h"
#include "protocol/gen/exports/unsupported.h"

namespace smolvm::exports {
namespace {

std::string Symbol(std::string_view name, int version, uint64_t flags = 0) {
  const ProcLookup found = FindProc(name, version, flags);
  return found.symbol ? found.symbol : "status " + std::to_string(static_cast<int>(found.status));
}

TEST(FindProcTest, PicksTheNewestVersionThatIsNotTooNew) {
  EXPECT_EQ(Symbol("cuMemAlloc", 2000), "cuMemAlloc");
  EXPECT_EQ(Symbol("cuMemAlloc", 3010), "cuMemAlloc");
  EXPECT_EQ(Symbol("cuMemAlloc", 3020), "cuMemAlloc_v2");
  EXPECT_EQ(Symbol("cuMemAlloc", 13000), "cuMemAlloc_v2");
  EXPECT_EQ(Symbol("cuMemAlloc", 99000), "cuMemAlloc_v2");
  EXPECT_EQ(Symbol("cuCtxCreate", 11039), "cuCtxCreate_v2");
  EXPECT_EQ(Symbol("cuCtxCreate", 11040), "cuCtxCreate_v3");
  EXPECT_EQ(Symbol("cuCtxCreate", 12050), "cuCtxCreate_v4");
  EXPECT_EQ(Symbol("cuGetProcAddress", 12000), "cuGetProcAddress_v2");
  EXPECT_EQ(Symbol("cuEventElapsedTime", 12080), "cuEventElapsedTime_v2");
  EXPECT_EQ(Symbol("cuStreamWaitValue32", 8000), "cuStreamWaitValue32");
  EXPECT_EQ(Symbol("cuGraphInstantiate", 11000), "cuGraphInstantiate_v2");
}

TEST(FindProcTest, TellsUnknownFromTooNew) {
  EXPECT_EQ(Symbol("cuThisDoesNotExist", 13000), "status 1");
  EXPECT_EQ(Symbol("", 0), "status 1");
  EXPECT_EQ(Symbol("cuMemAlloc_v2", 13000), "status 1");
  EXPECT_EQ(Symbol("cuMemcpy_ptds", 13000), "status 1");
  EXPECT_EQ(Symbol("cuLibraryLoadData", 11080), "status 2");
}

TEST(FindProcTest, PerThreadFlagPrefersThatVariant) {
  EXPECT_EQ(Symbol("cuMemcpyHtoD", 12000, 2), "cuMemcpyHtoD_v2_ptds");
  EXPECT_EQ(Symbol("cuLaunchKernel", 12000, 2), "cuLaunchKernel_ptsz");
  EXPECT_EQ(Symbol("cuLaunchKernel", 12000, 1), "cuLaunchKernel");
  EXPECT_EQ(Symbol("cuLaunchKernel", 4000, 2), "cuLaunchKernel");
  EXPECT_EQ(Symbol("cuMemAlloc", 12000, 2), "cuMemAlloc_v2");
  EXPECT_EQ(Symbol("cuStreamGetCaptureInfo", 12030, 2), "cuStreamGetCaptureInfo_v3_ptsz");
}

constexpr int kDriver = 13000;

TEST(GetProcAddressTest, V1) {
  int anything = 0;
  void* const untouched = &anything;
  void* pfn = untouched;
  EXPECT_EQ(GetProcAddressV1("cuThisDoesNotExist", &pfn, 13000, kDriver, 0), 500);
  EXPECT_EQ(GetProcAddressV1("cuMemAlloc", &pfn, 1000, kDriver, 0), 500);
  EXPECT_EQ(GetProcAddressV1("cuMemAlloc", &pfn, 13000, kDriver, 4), 1);
  EXPECT_EQ(GetProcAddressV1("cuMemAlloc", &pfn, 13010, kDriver, 0), 1);
  EXPECT_EQ(GetProcAddressV1(nullptr, &pfn, 13000, kDriver, 0), 1);
  EXPECT_EQ(GetProcAddressV1("cuMemAlloc", nullptr, 13000, kDriver, 0), 1);
  EXPECT_EQ(pfn, untouched);
  EXPECT_EQ(GetProcAddressV1("cuMemAlloc", &pfn, 13000, kDriver, 0), 0);
  EXPECT_EQ(pfn, ExportAddress("cuMemAlloc_v2"));
}

TEST(GetProcAddressTest, V2) {
  void* pfn = &pfn;
  int status = -1;
  EXPECT_EQ(GetProcAddressV2("", &pfn, 0, kDriver, 0, &status), 0);
  EXPECT_EQ(pfn, nullptr);
  EXPECT_EQ(status, 1);
  pfn = &pfn;
  EXPECT_EQ(GetProcAddressV2("cuMemAlloc", &pfn, 1000, kDriver, 0, &status), 0);
  EXPECT_EQ(pfn, nullptr);
  EXPECT_EQ(status, 2);
  EXPECT_EQ(GetProcAddressV2("cuMemAlloc", &pfn, 13000, kDriver, 0, nullptr), 0);
  EXPECT_EQ(pfn, ExportAddress("cuMemAlloc_v2"));
  EXPECT_EQ(GetProcAddressV2("cuMemAlloc", &pfn, 13000, kDriver, 4, &status), 1);
  EXPECT_EQ(GetProcAddressV2("cuMemAlloc", &pfn, 12060, 12050, 0, &status), 1);
  EXPECT_EQ(GetProcAddressV2("cuMemAlloc", &pfn, 12050, 12050, 0, &status), 0);
}

TEST(ExportModelTest, FindsTheEnumerators) {
  const auto types = ScanEnums(
      "/* typedef enum no { A } no; */ typedef enum color_enum {\n  RED = 1, /**< x, y */\n#if 1\n"
      "  GREEN = (RED << 1), // last\n  BLUE\n#endif\n} color;\nenum other { B };");
  ASSERT_EQ(types.size(), 1u);
  EXPECT_EQ(types[0].name, "color");
  EXPECT_EQ(types[0].enumerators, (std::vector<std::string>{"RED", "GREEN", "BLUE"}));
}

TEST(ExportModelTest, PairsSymbolsWithVersionsInOrder) {
  TypedefVersions versions;
  ScanTypedefs(
      "typedef CUresult (CUDAAPI *PFN_cuA_v3020)(int); typedef int (*PFN_cuA_v2000)(int);"
      "(*PFN_cuA_v7000_ptds)(int); (*PFN_cuB_v13010)(void); (*PFN_cuA_v13010)()",
      &versions);
  const auto rows = PairVersions({"cuA", "cuA_v2", "cuA_v2_ptds"}, versions);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].symbol, "cuA");
  EXPECT_EQ(rows[0].version, 2000);
  EXPECT_EQ(rows[1].symbol, "cuA_v2");
  EXPECT_EQ(rows[1].version, 3020);
  EXPECT_TRUE(rows[2].per_thread);
  EXPECT_EQ(rows[2].version, 7000);
  EXPECT_THROW(PairVersions({"cuMissing"}, versions), std::runtime_error);
}

TEST(ExportModelTest, RefusesABadList) {
  EXPECT_EQ(ParseExportList("# note\ncuA  \n\ncuB # x").size(), 2u);
  EXPECT_THROW(ParseExportList("cuA\ncuA\n"), std::runtime_error);
  EXPECT_THROW(ParseExportList("memcpy\n"), std::runtime_error);
}

}  // namespace
}  // namespace smolvm::exports
