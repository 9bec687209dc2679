#include "comm/nccl/library.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "tessera/error.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define TESSERA_HAS_NCCL_H
#endif

namespace tessera::comm::nccl {
namespace {

#ifdef TESSERA_HAS_NCCL_H
// Types with the same C ABI: enums as ints, handles as pointers, a struct of equal size.
template <class T>
using Plain =
    std::conditional_t<
        std::is_enum_v<T>, int,
        std::conditional_t<
            std::is_same_v<T, ncclUniqueId>, UniqueId,
            std::conditional_t<
                std::is_same_v<T, ncclUniqueId*>, UniqueId*,
                std::conditional_t<
                    std::is_same_v<T, ncclComm_t> || std::is_same_v<T, cudaStream_t>, void*,
                    std::conditional_t<
                        std::is_same_v<T, ncclComm_t*>, void**,
                        std::conditional_t<
                            std::is_same_v<T, ncclConfig_t*>, Config*,
                            std::conditional_t<std::is_same_v<T, ncclResult_t*>, int*, T>>>>>>>;
template <class Result, class... Arguments>
Plain<Result> (*plain(Result (*)(Arguments...)))(Plain<Arguments>...);
#define TESSERA_SAME(member, function) \
  static_assert(std::is_same_v<decltype(Functions::member), decltype(plain(&function))>)
TESSERA_SAME(get_unique_id, ncclGetUniqueId);
TESSERA_SAME(init_rank, ncclCommInitRankConfig);
TESSERA_SAME(send, ncclSend);
TESSERA_SAME(receive, ncclRecv);
TESSERA_SAME(group_start, ncclGroupStart);
TESSERA_SAME(group_end, ncclGroupEnd);
TESSERA_SAME(version, ncclGetVersion);
TESSERA_SAME(break_off, ncclCommAbort);
TESSERA_SAME(async_error, ncclCommGetAsyncError);
TESSERA_SAME(error_string, ncclGetErrorString);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) &&
              alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));
static_assert(ncclSuccess == 0 && ncclInt8 == 0 && ncclInProgress == kInProgress);
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(Config, net) == offsetof(ncclConfig_t, netName) &&
              offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));
#endif
static_assert(sizeof(Config) == offsetof(Config, traffic_class) + sizeof(int),
              "padding would be read as a field that newer versions have");

std::string refusal(const std::string& path) {
  try {
    open_library(std::span(&path, 1));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Library, SaysWhatToInstallWhereItIsMissing) {
  const std::string text = refusal("/nowhere/libnccl.so.2");
  EXPECT_NE(text.find("libnccl.so.2 cannot be opened"), std::string::npos) << text;
  EXPECT_NE(text.find("libnccl2"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST(Library, RefusesOneThatIsAnother) {
  const std::string text = refusal("libm.so.6");
  EXPECT_NE(text.find("has no ncclGetUniqueId"), std::string::npos) << text;
}

TEST(Library, RefusesOneThatIsTooOld) {
  Functions nccl{};
  nccl.version = [](int* version) { return *version = 22105, 0; };
  try {
    require_version(nccl);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("is NCCL 2.21: "), std::string::npos) << error.what();
  }
  nccl.version = [](int* version) { return *version = 22200, 0; };
  EXPECT_NO_THROW(require_version(nccl));
}

TEST(Library, ErrorsNameTheCallThePeerAndTheCause) {
  Functions nccl{};
  nccl.error_string = [](int) { return "unhandled system error"; };
  EXPECT_NO_THROW(check(nccl, 0, "ncclSend", 3));
  try {
    check(nccl, 2, "ncclSend", 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rank);
    EXPECT_EQ(std::string(error.what()).find("ncclSend with rank 3 failed: unhandled system error"),
              0u);
  }
}

TEST(Library, TransfersOfAllPairsShareTheRoomOfAGpu) {
  const auto blocks = [](int ranks) {
    ::unsetenv("NCCL_MAX_CTAS");
    ::unsetenv("NCCL_MAX_P2P_NCHANNELS");
    prepare_environment(ranks);
    EXPECT_STREQ(std::getenv("NCCL_MAX_CTAS"), std::getenv("NCCL_MAX_P2P_NCHANNELS"));
    return std::stoi(std::getenv("NCCL_MAX_CTAS"));
  };
  for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
    EXPECT_GE(blocks(ranks), 1);
    EXPECT_LE(blocks(ranks) * 2 * (ranks - 1), 48);
    EXPECT_EQ(blocks(ranks) & (blocks(ranks) - 1), 0) << "NCCL rounds up to a power of two";
  }
  EXPECT_EQ(blocks(2), 16);
  ::setenv("NCCL_MAX_CTAS", "7", 1);
  prepare_environment(2);
  EXPECT_STREQ(std::getenv("NCCL_MAX_CTAS"), "7") << "what the user says stays";
}

}  // namespace
}  // namespace tessera::comm::nccl
