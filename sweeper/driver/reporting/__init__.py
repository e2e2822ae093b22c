"""What a running sweep shows and tells: its progress, notices to a webhook, its tracked run, and why it failed."""
