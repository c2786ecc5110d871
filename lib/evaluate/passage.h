/* SPDX-License-Identifier: MIT
 * Haystacks: a text as tokens, sentence by sentence, of which pieces of any length are cut. */
#ifndef STILL_EVALUATE_PASSAGE_H
#define STILL_EVALUATE_PASSAGE_H

#include <still/model.h>

/* Each sentence is encoded with a space before it, so that any sequence of them is the text's own
 * encoding. */
typedef struct still_passage {
  still_token *ids;
  size_t *starts; /* of sentence i in ids; count + 1 */
  size_t count, id_room, start_room;
} still_passage;

/* Sentences end at . ! or ? before white space, or at an empty line; white space becomes one space.
 * ARGUMENT where the text has none. */
still_status still_passage_from_text(still_passage *passage, const still_tokenizer *tokenizer,
                                     const char *text, size_t bytes);
still_status still_passage_add(still_passage *passage, const still_tokenizer *tokenizer,
                               const char *sentence, size_t bytes);
/* Adds those sentences of another passage that have at least so many tokens. */
still_status still_passage_select(still_passage *passage, const still_passage *from, size_t fewest);
void still_passage_free(still_passage *passage);

/* n tokens that end with a sentence, from about `first` (any number, taken modulo count) on; after
 * the last sentence comes the first again. The first sentence may be cut at its beginning. */
typedef struct still_slice {
  const still_passage *passage;
  size_t first, skip; /* the slice begins at token `skip` of sentence `first` */
  size_t sentences, tokens;
} still_slice;

still_slice still_passage_slice(const still_passage *passage, uint64_t first, size_t tokens);
/* Tokens from .. to-1 of a slice. */
void still_slice_copy(const still_slice *slice, size_t from, size_t to, still_token *ids);
/* The place nearest to `at` where a sentence may be put in: before a whole sentence, or the end. */
size_t still_slice_nearest(const still_slice *slice, double at);
/* One of all such places, share (0 .. below 1) of them before it. */
size_t still_slice_place(const still_slice *slice, double share);

#endif
