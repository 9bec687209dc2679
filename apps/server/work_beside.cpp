#include "server/work_beside.h"

#include <future>

namespace tessera::server {

void work_beside(const std::function<void()>& work, std::chrono::milliseconds every,
                 const std::function<void()>& beat) {
  std::future<void> done = std::async(std::launch::async, work);
  while (done.wait_for(every) != std::future_status::ready) beat();
  done.get();
}

}  // namespace tessera::server
