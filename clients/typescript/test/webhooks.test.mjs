// CASES: requests that Duly's Python code signed, and changes of them: [{ headers, body, accepted }].
import assert from "node:assert/strict";
import { test } from "node:test";

import { DulyError, SignatureError, verifyWebhook } from "../dist/index.js";

const { key, sentAt, cases } = JSON.parse(process.env.CASES);
const now = sentAt * 1000;

for (const { why, headers, body, said } of cases) {
  test(why, () => {
    const verify = (seen) => verifyWebhook(seen, Buffer.from(body), { old: "whsec_" + "A".repeat(40), new: key }, { now });

    for (const seen of [headers, new Map(Object.entries(headers))]) {
      if (said) {
        const { taskId, lambda, attempt, fence, deadline, keyId } = verify(seen);
        assert.deepEqual([taskId, lambda, attempt, String(fence), deadline.toISOString(), keyId], said);
      } else {
        assert.throws(() => verify(seen), SignatureError);
      }
    }
  });
}

test("a key that is none is told, unquoted", () => {
  const { headers, body } = cases[0];

  for (const wrong of ["s3cret", "whsec_s3cret", "whsec_"]) {
    assert.throws(
      () => verifyWebhook(headers, Buffer.from(body), { new: wrong }, { now }),
      (error) => error instanceof DulyError && !(error instanceof SignatureError) && !error.message.includes("s3cret"),
    );
  }
});
