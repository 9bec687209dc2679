#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <thread>

#include "base/stop.h"
#include "readers/inputs.h"
#include "tessera/error.h"

namespace tessera::readers {
namespace {

// Also 10 MB with TESSERA_READERS=long.
std::vector<size_t> sizes() {
  const char* long_run = std::getenv("TESSERA_READERS");
  if (long_run && std::string(long_run) == "long") return {100'000, 1'000'000, 10'000'000};
  return {20'000, 200'000};
}

std::vector<Reader> all_readers() {
  std::vector<Reader> all;
  for (const auto& some : {text_readers(), template_readers(), file_readers()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

void attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled) throw;
  }
}

// Time in user mode: other processes may load the machine, and the kernel clears new pages.
double user_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_utime.tv_sec) + double(usage.ru_utime.tv_usec) * 1e-6;
}

double seconds(const std::function<void()>& work) {
  const double begin = user_time();
  attempt(work);
  return user_time() - begin;
}

class Readers : public testing::TestWithParam<Reader> {};

TEST_P(Readers, TakeLinearTime) {
  const Reader& reader = GetParam();
  double before = 0;
  for (const size_t bytes : sizes()) {
    if (bytes > reader.most) break;
    const auto work = reader.prepare(bytes);
    constexpr double kLeast = 0.01;  // shorter times are noise or one-time costs
    double now = seconds(work);
    for (int more = 0; more < 3 && now > 12 * std::max(before, kLeast); ++more)
      now = std::min(now, seconds(work));
    if (before > 0) {
      EXPECT_LE(now, 12 * std::max(before, kLeast)) << bytes << " bytes";
    }
    before = now;
    RecordProperty(fmt::format("ms_of_{}", bytes), static_cast<int>(now * 1000));
  }
}

TEST_P(Readers, HearAStop) {
  const Reader& reader = GetParam();
  const auto work = reader.prepare(std::min(sizes().back(), reader.most));
  double least = 1e9;
  for (int tries = 0; tries < 3 && least > 0.3; ++tries) {
    std::stop_source stop;
    std::promise<void> began;
    std::clock_t ended = 0;
    std::thread worker([&] {
      const base::BindStop bind(stop.get_token());
      began.set_value();
      try {
        attempt(work);
      } catch (const Error&) {
      }
      ended = std::clock();
    });
    began.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::clock_t asked = std::clock();
    stop.request_stop();
    worker.join();
    least = std::min(least, double(ended - asked) / CLOCKS_PER_SEC);
  }
  EXPECT_LE(least, 0.3);
}

std::string number_of(const testing::TestParamInfo<Reader>& info) {
  return std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(All, Readers, testing::ValuesIn(all_readers()), number_of);

}  // namespace

void PrintTo(const Reader& reader, std::ostream* out) { *out << reader.name; }

}  // namespace tessera::readers
