"""Why an event matched a subscription or did not."""
