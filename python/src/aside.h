#pragma once

#include <functional>
#include <stop_token>

namespace tessera::python {

/// Runs a question to Python on the caller's thread under the GIL, and waits for the end.
using Ask = std::function<void(const std::function<void()>& question)>;

/// Runs `work` on a thread of its own. Meanwhile the calling thread gives up the GIL, answers
/// questions and looks for signals: Ctrl-C is heard in the midst of a step. `work` is asked to stop
/// when `cancel` is, and when Python raises: the exception is rethrown once the work has ended.
void run_aside(const std::stop_token& cancel,
               const std::function<void(const std::stop_token& stop, const Ask& ask)>& work);

}  // namespace tessera::python
