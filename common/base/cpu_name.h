#pragma once
#include <string>

namespace dex {
std::string cpu_name();  // as the system calls it; "unknown" where it does not
}
