/* SPDX-License-Identifier: MIT
 * What the reader and the writer of adapters share: the table of tensors that are not LoRA pairs, names of metadata. */
#ifndef STILL_MODEL_ADAPTER_PARTS_H
#define STILL_MODEL_ADAPTER_PARTS_H

#include "model/adapter.h"

#define STILL_ADAPTER_VERSION "1"
#define STILL_LORA_PREFIX "base_model.model.model.layers."

enum { STILL_ADAPTER_PARTS = 6, STILL_LORA_MOST_RANK = 4096 };

typedef struct still_adapter_part {
  const char *name; /* layers.<i>.<name> */
  size_t offset;    /* of the float pointer in still_adapter_layer */
} still_adapter_part;
extern const still_adapter_part still_adapter_parts[STILL_ADAPTER_PARTS];

/* Dimensions of a part, 1 to 3. */
uint32_t still_adapter_part_shape(const still_model_config *config, int part, uint64_t shape[3]);

static inline float **still_adapter_part_of(still_adapter_layer *layer, int part) {
  return (float **)((char *)layer + still_adapter_parts[part].offset);
}

/* Metadata whose value is a whole number of the attention options, with the least that is allowed. */
typedef struct still_adapter_number {
  const char *key;
  size_t offset; /* of an int in still_attention_options */
  int least;
} still_adapter_number;
enum { STILL_ADAPTER_NUMBERS = 6 };
extern const still_adapter_number still_adapter_numbers[STILL_ADAPTER_NUMBERS];

/* Metadata whose value is a word: the words in the order of the enum's values. */
typedef struct still_adapter_word {
  const char *key;
  size_t offset; /* of an enum in still_attention_options */
  const char *words[6];
} still_adapter_word;
enum { STILL_ADAPTER_WORDS = 4 };
extern const still_adapter_word still_adapter_words[STILL_ADAPTER_WORDS];

/* Every tensor of a file into the adapter; one that has no place is refused by name. scale goes to all pairs. */
still_status still_adapter_take_tensors(still_adapter *adapter, const still_safetensors *file,
                                        const still_model_config *config, float scale);

/* adapter_read.c: "12.rest" with 12 < layers: the layer, and what follows the dot; else NULL. */
still_adapter_layer *still_adapter_layer_of(still_adapter *adapter, const char *text,
                                            const char **rest);
/* One half of a pair; its rank must be that of the other half, if that is there. */
still_status still_adapter_take_half(still_lora *lora, const still_tensor *tensor, bool is_a,
                                     uint64_t out, uint64_t in);
still_status still_adapter_no_place(const still_tensor *tensor);
/* W_g of a layer. */
still_status still_adapter_take_gate(still_adapter_layer *layer, const still_tensor *tensor,
                                     const still_model_config *config);

/* adapter_authors.c: whether a file has the names of the STILL authors' code; reads it. */
bool still_adapter_is_authors(const still_safetensors *file);
still_status still_adapter_take_authors(still_adapter *adapter, const still_safetensors *file,
                                        const still_model_config *config);

/* adapter_gguf.c: a LoRA adapter as llama.cpp writes it. */
still_status still_adapter_read_gguf(still_adapter *adapter, const char *path,
                                     const still_model_config *config);

/* adapter_peft.c */
still_status still_adapter_read_peft(still_adapter *adapter, const char *folder,
                                     const still_model_config *config);

#endif
