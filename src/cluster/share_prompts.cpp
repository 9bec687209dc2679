#include "cluster/share_prompts.h"

#include <exception>
#include <span>

#include "base/as_error.h"
#include "base/fail.h"
#include "cluster/agree.h"
#include "comm/collectives.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::cluster {
namespace {

using tensor::Tensor;

const comm::Tag kTag{"join", -1, TrafficKind::control};

// Each prompt as the number of its ids, then the ids.
Tensor packed(const PromptIds& prompts) {
  std::vector<int32_t> packed_ids;
  for (const auto& ids : prompts) {
    packed_ids.push_back(static_cast<int32_t>(ids.size()));
    packed_ids.insert(packed_ids.end(), ids.begin(), ids.end());
  }
  return Tensor::from(std::span<const int32_t>(packed_ids), {std::ssize(packed_ids)});
}

PromptIds unpacked(const Tensor& message) {
  PromptIds prompts;
  std::span remaining(message.data<int32_t>(), static_cast<size_t>(message.elements()));
  while (!remaining.empty()) {
    const int64_t count = remaining.front();
    remaining = remaining.subspan(1);
    require(count >= 0 && count <= std::ssize(remaining), ErrorCode::rank,
            "rank 0 says a prompt of {} ids, where {} are left; start all ranks with one program",
            count, remaining.size());
    const auto ids = remaining.first(static_cast<size_t>(count));
    prompts.emplace_back(ids.begin(), ids.end());
    remaining = remaining.subspan(ids.size());
  }
  return prompts;
}

}  // namespace

PromptIds share_prompts(comm::Communicator* world, const std::function<PromptIds()>& ask) {
  if (!world || world->size() == 1) return ask();
  const tensor::Uncounted aside(tensor::Counts::work);  // outside the prediction
  Tensor message;
  std::exception_ptr failed;
  if (world->rank() == 0) try {
      message = packed(ask());
    } catch (
        const std::exception& e) {  // the waiting ranks receive this error in place of the prompts
      failed = std::current_exception();
      const Error error = base::as_error(e);
      message = comm::word_of(&error);
    }
  message = comm::broadcast(*world, 0, message, kTag);
  if (failed) std::rethrow_exception(failed);
  if (message.dtype() == tensor::DType::u8) throw_if_error(message);
  return unpacked(message);
}

int64_t least_of(comm::Communicator* world, int64_t number) {
  if (!world || world->size() == 1) return number;
  int64_t least[] = {-number};
  comm::all_reduce_max(*world, least, kTag);
  return -least[0];
}

}  // namespace tessera::cluster
