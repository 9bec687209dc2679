#include "pipeline/run.h"

namespace tessera::pipeline {

void Run::on(const cluster::Ranks& ranks) {
  agree();
  ranks.all_or_none("plans the run", [&] { admit(); });
  announce();
  ranks.all_or_none(loads(), [&] { load(); });
  launch();
  report();
}

}  // namespace tessera::pipeline
