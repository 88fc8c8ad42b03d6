// See context.h in gloo/.
#pragma once
#include "gloo/context.h"
