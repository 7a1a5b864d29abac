package search_test

import (
	"strings"
	"testing"

	"sheaf/internal/search"
)

// passages are paragraphs of a made-up product's documentation, one document
// each: id, heading, text.
const passages = `
login-reset|Account|If you have forgotten your password, choose "Forgot password" on the sign-in page. We send a link to your e-mail address that is valid for one hour.
login-2fa|Account|Two-factor authentication adds a six-digit code from an authenticator app to the sign-in. Store the recovery codes in a safe place.
login-sso|Account|Single sign-on works with any SAML 2.0 identity provider. Upload its metadata file and map the attribute that holds the e-mail address.
login-lock|Account|After ten failed attempts the account is locked for fifteen minutes. An administrator can unlock it earlier.
account-delete|Account|Closing an account removes all personal data after thirty days. Until then the owner can restore it.
team-invite|Teams|Invite colleagues by entering their e-mail addresses. Pending invitations expire after seven days.
team-roles|Teams|There are three roles: viewers may read, editors may change documents, and administrators manage members and billing.
team-guest|Teams|Guests see only the folders that were shared with them and do not count towards the number of licences.
bill-invoice|Billing|Invoices are issued on the first day of each month and can be downloaded as PDF from the billing page.
bill-card|Billing|To change the credit card, open Billing, choose Payment method and enter the new number. The old card is removed at once.
bill-refund|Billing|Annual subscriptions can be cancelled within fourteen days for a full refund. Monthly plans are not refunded.
bill-vat|Billing|Companies in the European Union enter their VAT number so that no tax is added to the price.
bill-plan|Billing|Upgrading takes effect immediately and you pay the difference for the rest of the period; a downgrade waits until its end.
sync-start|Synchronisation|The desktop client synchronises a local folder with the server. Install it, sign in and choose where the folder lies.
sync-conflict|Synchronisation|When two people edit the same file at once, the later version is saved beside the first as a conflicted copy.
sync-slow|Synchronisation|Slow transfers are often caused by an upload limit in the settings or by a virus scanner that opens each file.
sync-selective|Synchronisation|With selective sync only the folders you tick are kept on the disk; the others stay in the cloud.
sync-error-409|Synchronisation|Error E-409 means that the file is open in another program. Close that program and try again.
sync-error-507|Synchronisation|Error E-507 is shown when the storage quota is used up. Delete old versions or buy more space.
share-link|Sharing|A public link lets anyone open a file without an account. Links can have a password and an expiry date.
share-revoke|Sharing|To stop sharing, open the list of links and choose Revoke. Copies that were downloaded are not affected.
share-watermark|Sharing|Documents shared outside the company can carry a watermark with the reader's name on every page.
version-history|Versions|The last fifty versions of each file are kept for ninety days. Choose Version history to restore one.
version-trash|Versions|Deleted files stay in the recycle bin for thirty days and can be put back to where they were.
search-operators|Search|Put words in quotes to find an exact phrase. A minus before a word leaves out files that contain it.
search-ocr|Search|Scanned pages become searchable through optical character recognition, which runs in the background.
api-key|API|Create an API key under Developer settings. The key is shown once; store it like a password.
api-limit|API|Clients may send 600 requests a minute. Beyond that the server answers 429 with a Retry-After header.
api-webhook|API|Webhooks call your address when a file changes. Each call is signed with HMAC-SHA256 and repeated for a day if it fails.
api-page|API|Lists are paginated: pass the cursor of the previous answer to get the next hundred items.
api-error|API|Errors come as problem JSON with a stable code and a sentence that says what to do.
install-linux|Installation|On Debian and Ubuntu add the repository's signing key, then install the package with apt.
install-windows|Installation|Run the installer as administrator. It registers a service that starts with the machine.
install-mac|Installation|Drag the application into the Applications folder and allow it full disk access in the system settings.
install-docker|Installation|The container image needs two volumes, one for the database and one for the files, and listens on port 8080.
install-proxy|Installation|Behind a corporate proxy set HTTPS_PROXY, and add the proxy's certificate to the trusted authorities.
require-hardware|Installation|The server needs two processor cores, four gigabytes of memory and a solid-state disk.
upgrade-major|Upgrades|Make a backup before you move to a new major version. The database is migrated on the first start and cannot go back.
backup-create|Backup|A nightly job copies the database and the files to an S3 bucket. Encryption uses a key that you keep.
backup-restore|Backup|To recover from a disaster install the same version, stop the service and run the restore command with the date of the snapshot.
backup-test|Backup|Try a restore every quarter on a spare machine: a copy that was never read back is no backup.
sec-encrypt|Security|Files are encrypted at rest with AES-256 and in transit with TLS 1.3.
sec-audit|Security|The audit log records who opened, changed or shared which file, with time and address. It is kept for a year.
sec-gdpr|Security|For the GDPR we sign a data processing agreement. Data stays in data centres in Frankfurt and Dublin.
sec-virus|Security|Every upload is scanned for malware. Infected files are put in quarantine and the owner is told.
sec-ip|Security|Administrators can restrict access to certain IP ranges, for example to the office network.
mobile-offline|Mobile|Mark a file as available offline to read it on a plane. Changes are sent when the phone is connected again.
mobile-scan|Mobile|The camera scans paper documents, straightens them and saves them as PDF.
mobile-battery|Mobile|Automatic photo upload uses much battery. Allow it only while the phone is charging.
notify-mail|Notifications|Choose which events send an e-mail: comments, mentions, shared files or nothing at all.
notify-slack|Notifications|The Slack integration posts a message in a channel when a document is approved.
comment-mention|Collaboration|Type @ and a name in a comment to draw somebody's attention to it.
edit-together|Collaboration|Several people can write in the same document at the same time and see each other's cursors.
edit-template|Collaboration|Templates fill in headings, logo and signature so that letters look alike.
flow-approve|Workflow|An approval sends a document to one or more reviewers. It is locked until all have agreed.
flow-retention|Workflow|A retention rule keeps contracts for ten years and then deletes them automatically.
flow-sign|Workflow|Electronic signatures are legally binding in the EU and the USA. The signer gets a code by text message.
print-setup|Printing|Add the network printer by its address. Duplex and colour are chosen in the print dialogue.
lang-change|Settings|The language of the interface is changed in your profile. Twenty-two languages are available.
lang-timezone|Settings|Dates are shown in the time zone of the browser unless another one is set in the profile.
theme-dark|Settings|Dark mode follows the operating system or is switched on under Appearance.
support-contact|Support|Paying customers reach the help desk around the clock by chat or telephone.
support-logs|Support|Attach the diagnostic file to your ticket: choose Help, then Collect logs.
`

// questions are what people ask, with the passage that answers. Many share few
// words with it.
const questions = `
How do I get back into my account when I forgot my password?|login-reset
I lost my phone with the authenticator, what are recovery codes for|login-2fa
connect our SAML identity provider|login-sso
account locked after wrong attempts|login-lock
E-409|sync-error-409
what does error E-507 mean|sync-error-507
update credit card number|bill-card
can I get my money back if I cancel|bill-refund
where can I download invoices|bill-invoice
who is allowed to manage members|team-roles
two people edited the same file|sync-conflict
uploading is very slow|sync-slow
recover a deleted file|version-trash
go back to an earlier version of a document|version-history
rate limit requests per minute|api-limit
verify the signature of webhook calls|api-webhook
set a password on a shared link|share-link
"exact phrase"|search-operators
which port does the docker container listen on|install-docker
corporate proxy certificate|install-proxy
restore from snapshot after a disaster|backup-restore
who opened or changed a file|sec-audit
GDPR data centre location|sec-gdpr
read files without internet on the plane|mobile-offline
lots of battery used by photo uploads|mobile-battery
keep contracts ten years then delete|flow-retention
electronic signature legally binding|flow-sign
switch the interface to another language|lang-change
how much memory does the server need|require-hardware
send logs to the help desk|support-logs
`

func TestGoldenRetrieval(t *testing.T) {
	s, store := newSearcher(t)
	for line := range strings.Lines(strings.TrimSpace(passages)) {
		part := strings.SplitN(strings.TrimSpace(line), "|", 3)
		add(t, s, store, chunk(part[0], part[2], func(e *entryOf) { e.Chunk.HeadingPath = []string{part[1]} }))
	}
	for _, test := range []struct {
		mode                   search.Mode
		recall1, recall10, mrr float64 // floors; measured: 0.93 1.00 0.96, 0.90 1.00 0.94, 0.90 1.00 0.94
	}{
		{search.Hybrid, 0.80, 0.96, 0.88},
		{search.Text, 0.76, 0.93, 0.85},
		{search.Vector, 0.76, 0.93, 0.85},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			n, first, found, reciprocal := 0.0, 0.0, 0.0, 0.0
			for line := range strings.Lines(strings.TrimSpace(questions)) {
				question, want, _ := strings.Cut(strings.TrimSpace(line), "|")
				r, err := s.Search(t.Context(), tenant, search.Request{Query: question, Mode: test.mode})
				if err != nil {
					t.Fatal(err)
				}
				n++
				rank := 0
				for i, h := range r.Hits {
					if h.Document.ID == want {
						rank = i + 1
						break
					}
				}
				if rank > 0 {
					found++
					reciprocal += 1 / float64(rank)
				}
				if rank == 1 {
					first++
				} else {
					t.Logf("%q: %s at rank %d", question, want, rank)
				}
			}
			t.Logf("recall@1 %.3f, recall@10 %.3f, MRR %.3f", first/n, found/n, reciprocal/n)
			if first/n < test.recall1 || found/n < test.recall10 || reciprocal/n < test.mrr {
				t.Errorf("recall@1 %.3f, recall@10 %.3f, MRR %.3f, want at least %+v", first/n, found/n, reciprocal/n, test)
			}
		})
	}
}
