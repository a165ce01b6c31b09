#pragma once

namespace smolvm::gpu {

// The long texts of `smolvm gpu --help` and of its subcommands.
extern const char kSummary[];
extern const char kOverviewHelp[];
extern const char kDetectHelp[];
extern const char kRunArgsHelp[];
extern const char kCheckHelp[];
extern const char kExplainHelp[];
extern const char kRunHelp[];
extern const char kCdiSpecHelp[];

}  // namespace smolvm::gpu
