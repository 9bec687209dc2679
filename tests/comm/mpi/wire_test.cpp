#include "comm/mpi/wire.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tessera/error.h"

namespace tessera::comm::mpi {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(Wire, AMessageArrivesWithItsShapeDtypeAndTag) {
  Names names;
  for (const Tensor& data : {Tensor::empty({3, 0, 5}, DType::bf16), Tensor::empty({7}, DType::i64),
                             Tensor::empty({1, 2, 3, 4, 5, 6}, DType::u8)}) {
    const Message in = announced(describe(77, {{"dispatch", 4}, data}), names);
    EXPECT_EQ(in.data.shape(), data.shape());
    EXPECT_EQ(in.data.dtype(), data.dtype());
    EXPECT_STREQ(in.tag.operation, "dispatch");
    EXPECT_EQ(in.tag.site, 4);
  }
}

TEST(Wire, ItsNumberAndTheWordThatItIsTheLastTravelToo) {
  Names names;
  Message out{{"close", -1}, Tensor::empty({0}, DType::u8)};
  out.order = uint64_t{1} << 40;
  EXPECT_FALSE(announced(describe(1, out), names).last);
  out.last = true;
  const Message in = announced(describe(1, out), names);
  EXPECT_EQ(in.order, out.order);
  EXPECT_TRUE(in.last);
}

TEST(Wire, TensorsOfDevicesAreRefused) {
  EXPECT_THROW(describe(1, {{"x", 0}, Tensor::empty({3}, DType::f32, tensor::Device::meta)}),
               Error);
}

TEST(Wire, NamesAreKeptOnce) {
  Names names;
  EXPECT_EQ(names.keep("combine"), names.keep("combine"));
  EXPECT_NE(names.keep("combine"), names.keep("dispatch"));
}

TEST(Wire, RefusesHeadersThatNoRankSends) {
  Names names;
  const Header good = describe(1, {{"x", 0}, Tensor::empty({4, 5}, DType::f32)});
  EXPECT_NO_THROW(announced(good, names));
  const auto refused = [&](auto change) {
    Header bad = good;
    change(bad);
    EXPECT_THROW(announced(bad, names), Error);
  };
  refused([](Header& h) { h.magic = 0; });
  refused([](Header& h) { h.axes = 7; });
  refused([](Header& h) { h.dtype = 99; });
  refused([](Header& h) { h.bytes = 81; });
  refused([](Header& h) { h.sizes[0] = -4; });
  refused([](Header& h) { h.sizes[1] = INT64_MAX; });
  refused([](Header& h) { std::memset(h.operation, 'x', sizeof h.operation); });
  refused([](Header& h) {
    h.axes = 6;
    for (int64_t& size : h.sizes) size = int64_t{1} << 40;
  });
}

TEST(Wire, RefusesLongNames) {
  const std::string name(38, 'a');
  EXPECT_THROW(describe(1, {{name.c_str(), 0}, Tensor::empty({1}, DType::u8)}), Error);
}

TEST(Wire, NoticesTravelShort) {
  Notice notice;
  notice.progress = 9;
  EXPECT_LT(size_of(notice), 64u);
  EXPECT_EQ(read_notice(&notice, size_of(notice), 2).progress, 9u);
  notice.kind = Notice::failed;
  notice.origin = 1;
  std::strcpy(notice.text, "rank 1 failed");
  EXPECT_STREQ(read_notice(&notice, size_of(notice), 2).text, "rank 1 failed");
  EXPECT_THROW(read_notice(&notice, size_of(notice), 1), Error) << "a rank that is not there";
  EXPECT_THROW(read_notice(&notice, 3, 2), Error);
  notice.waits_for = 2;
  EXPECT_THROW(read_notice(&notice, size_of(notice), 2), Error) << "it waits for nobody we know";
  notice.waits_for = -1;
  notice.kind = static_cast<Notice::Kind>(12);
  EXPECT_THROW(read_notice(&notice, sizeof notice, 2), Error);
}

}  // namespace
}  // namespace tessera::comm::mpi
