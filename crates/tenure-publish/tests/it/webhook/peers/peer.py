# Verifies a call with the published Python library, and signs one with it.
# Reads {"secret", "headers", "body", "other"} as JSON, writes the results as JSON.
import datetime
import json
import sys

from standardwebhooks import Webhook, WebhookVerificationError

call = json.load(sys.stdin)
webhook = Webhook(call["secret"])


def believes(body):
    try:
        webhook.verify(body, call["headers"])
        return True
    except WebhookVerificationError:
        return False


now = datetime.datetime.now(tz=datetime.timezone.utc).replace(microsecond=0)
json.dump(
    {
        "believes": believes(call["body"]),
        "believes_other": believes(call["other"]),
        "timestamp": str(int(now.timestamp())),
        "signature": webhook.sign("msg_of_the_peer", now, call["body"]),
    },
    sys.stdout,
)
