#pragma once

#include <string>
#include <vector>

#include "load/name_rules.h"

namespace tessera::load {

/// All tables, and the table of a class name; null: files have the names of the model.
const std::vector<const NameTable*>& name_tables();
const NameTable* name_table_of(const std::string& type);

}  // namespace tessera::load
