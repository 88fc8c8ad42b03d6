// Adapters of older forms, written again in the form of today.
#pragma once
#include <filesystem>

#include "launch/inspect/inspection.h"

namespace dex {

// `path` is a directory of adapters, or of a training run, whose own adapters and best ones are
// meant. They get the digests of the model's tensors; their own tensors stay. Each file is replaced
// whole. What is of today's form is held against the model and left. Error(usage) when there are no
// adapters, when they are another model's, or while a run uses the directory (Error(temporary)).
Inspection rewrite_adapters(const std::filesystem::path& path, const std::filesystem::path& model);

}  // namespace dex
