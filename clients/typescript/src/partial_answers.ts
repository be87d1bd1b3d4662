/** Tells the program of an answer that lacks cells: the Frontend names them in trailing metadata. */

import type { Metadata } from "@grpc/grpc-js";

const HEADER = "duly-cells-missing";

/**
 * An answer lacks cells that do not answer; what it has is right. Node writes it to stderr as a warning, and
 * `process.on("warning", ...)` gets it. `cells` has the names of those that are missing.
 */
export class PartialAnswerWarning extends Error {
  constructor(readonly cells: readonly string[]) {
    super(sentence(cells));
    this.name = "PartialAnswerWarning";
  }
}

export function warnOf(trailing: Metadata): void {
  const [named] = trailing.get(HEADER);
  if (typeof named === "string" && named) process.emitWarning(new PartialAnswerWarning(named.split(",")));
}

/** As `duly` and Python's SDK say it. */
function sentence(cells: readonly string[]): string {
  const names = [...cells].sort();
  if (names.length === 1) return `not shown: cell ${names[0]}, which does not answer`;
  return `not shown: cells ${names.slice(0, -1).join(", ")} and ${names.at(-1)}, which do not answer`;
}
