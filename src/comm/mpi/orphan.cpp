#include "comm/mpi/orphan.h"

#ifdef TESSERA_PMIX
#include <pmix.h>
#endif

#include <atomic>
#include <iterator>

namespace tessera::comm::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// The time of the broken connection to mpirun, or 0. PMIx's handlers can reach nothing else.
std::atomic<int64_t> broken{0};

#ifdef TESSERA_PMIX
// The first and last handler: Open MPI would end the process.
void on_event(size_t, pmix_status_t status, const pmix_proc_t*, pmix_info_t*, size_t, pmix_info_t*,
              size_t, pmix_event_notification_cbfunc_fn_t done, void* data) {
  int64_t never = 0;
  if (status == PMIX_ERR_LOST_CONNECTION || status == PMIX_ERR_UNREACH)
    broken.compare_exchange_strong(never, Clock::now().time_since_epoch().count());
  if (done) done(PMIX_EVENT_ACTION_COMPLETE, nullptr, 0, nullptr, nullptr, data);
}
#endif

}  // namespace

void outlive_mpirun() {
#ifdef TESSERA_PMIX
  if (!PMIx_Initialized()) return;  // without mpirun
  static pmix_status_t codes[] = {
      PMIX_ERR_LOST_CONNECTION,   PMIX_ERR_UNREACH,          PMIX_ERROR,
      PMIX_ERR_PROC_TERM_WO_SYNC, PMIX_ERR_JOB_TERM_WO_SYNC, PMIX_ERR_PROC_ABORTED_BY_SIG};
  PMIx_Register_event_handler(codes, std::size(codes), nullptr, 0, on_event, nullptr, nullptr);
#endif
}

std::optional<Clock::time_point> orphaned_since() {
  const int64_t since = broken;
  if (since == 0) return std::nullopt;
  return Clock::time_point{Clock::duration(since)};
}

}  // namespace tessera::comm::mpi
