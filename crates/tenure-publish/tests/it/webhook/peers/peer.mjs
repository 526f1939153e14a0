// Verifies a call with the published JavaScript library, and signs one with it. The library does
// not support public keys, so Node's own ed25519 verifies those signatures.
// Reads {"secret", "public", "headers", "body", "other"} as JSON, writes the results as JSON.
// The first argument is the folder in which the library is installed.
import { createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[2]}/`);
const { Webhook, WebhookVerificationError } = require("standardwebhooks");
const call = JSON.parse(readFileSync(0, "utf8"));
const webhook = new Webhook(call.secret);

function believes(body) {
  try {
    webhook.verify(body, call.headers);
    return true;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return false;
    throw error;
  }
}

function isPublic(front, header) {
  const x = Buffer.from(call.public.slice("whpk_".length), "base64").toString("base64url");
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  const message = Buffer.from(front + call.body);
  const signatures = call.headers[header].split(" ").filter((text) => text.startsWith("v1a,"));
  return signatures.some((text) => verify(null, message, key, Buffer.from(text.slice(4), "base64")));
}

const now = new Date(Math.floor(Date.now() / 1000) * 1000);
const said = (names) => names.map((name) => call.headers[`webhook-${name}`]);
const plain = said(["id", "timestamp"]).join(".") + ".";
const names = ["id", "timestamp", "fence", "attempt", "sequence", "topic"];
const own = ["tenure", ...said(names)].join("\n") + "\n";
process.stdout.write(
  JSON.stringify({
    believes: believes(call.body),
    believes_other: believes(call.other),
    public: isPublic(plain, "webhook-signature"),
    public_own: isPublic(own, "webhook-tenure-signature"),
    timestamp: String(now.getTime() / 1000),
    signature: webhook.sign("msg_of_the_peer", now, call.body),
  }),
);
