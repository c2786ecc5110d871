/* SPDX-License-Identifier: MIT
 * still-run --saliency: a page that shows the text, every token as dark as its routing score, beside what full
 * attention would come back to. */
#include "program_arguments.h"
#include "program_model.h"
#include "program_terminal.h"
#include "run.h"

#include <stdio.h>

int run_saliency_begin(run_state *run) {
  return still_mechanism_create(&run->mechanism, run->session, SALIENCY_TOKENS)
             ? program_failure("--saliency")
             : PROGRAM_DONE;
}

static int keeps_anything(const run_state *run) {
  size_t count;
  const still_mechanism_head *heads = still_mechanism_heads(run->mechanism, &count);
  for (size_t i = 0; i < count; i++)
    if (heads[i].kept) return 1;
  return 0;
}

int run_saliency(const run_state *run, const char *path) {
  if (still_mechanism_measure(run->mechanism, NULL) || still_mechanism_draw(run->mechanism, path))
    return program_failure("--saliency");
  if (program_quiet()) return PROGRAM_DONE;
  if (!keeps_anything(run))
    program_complain("--saliency %s: nothing is kept: --attn still keeps, in a text of some chunks",
                     path);
  if (still_session_position(run->session) > SALIENCY_TOKENS)
    program_complain("--saliency %s: shows the first %d tokens", path, SALIENCY_TOKENS);
  return PROGRAM_DONE;
}
