#pragma once

#include <string>

namespace weft::dist {

/// "/weft-<user>-<job>-<group>", the name of a group's shared memory; the job's id is shortened to
/// fit.
std::string shm_name(const std::string& job_id, const std::string& group_id);

/// Removes the name; the memory lives on where it is mapped.
void unlink_shm(const std::string& name);

/// Removes the names of all groups of job `job_id` that its ranks have left on this host. A rank
/// that is killed before all others have mapped a group's memory leaves its name, and the memory
/// with it. Call once no rank of the job runs here any more.
void unlink_shm_of_job(const std::string& job_id);

}  // namespace weft::dist
