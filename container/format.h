#pragma once

#include <string>
#include <vector>

#include "container/gpu.h"

namespace smolvm::gpu {

// How `smolvm gpu run-args` writes its words.
enum class ArgsFormat {
  kShell,  // on one line, for podman run $(smolvm gpu run-args …)
  kLines,  // one word a line
  kJson,   // an array of strings
};

// The words in that form, with a final newline; no words are an empty text (kJson: "[]").
// Throws GpuConfigError when a word cannot survive the form: the shell splits the output at white
// space and expands wildcards but removes no quotes, so nothing can be escaped there.
std::string FormatArgs(const std::vector<std::string>& words, ArgsFormat format);

// What `smolvm gpu detect` prints: a table for people, or JSON.
std::string FormatDetected(const std::vector<DetectedVendor>& detected, bool json);

}  // namespace smolvm::gpu
